-- deed.extend_messages: renew the leases of messages that are still this claim's, and
-- return those: a lease that ran out is renewed unless somebody has taken the message. One that
-- somebody has locked, such as by an erasure that is left open, is not waited for, nor renewed, and this claim's while its lease lasts.
create or replace function deed.extend_messages(
  p_ids    uuid[],
  p_claims bigint[],
  p_lease  interval
) returns setof uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_held uuid[] := array(
    select m.id
    from unnest(p_ids, p_claims) u(id, claim)
    cross join lateral (
      select c.id from deed.channel_messages c where c.id = u.id and c.claim = u.claim and c.status = 'accepted' and c.lease_until < 'infinity' for no key update skip locked
    ) m
  );
begin
  -- In a statement of its own, which sees them as they were locked.
  update deed.channel_messages m set lease_until = clock_timestamp() + p_lease where m.id = any (v_held);
  return query
  select c.id
  from unnest(p_ids, p_claims) u(id, claim)
  cross join lateral (
    select o.id from deed.channel_messages o where o.id = u.id and o.claim = u.claim and o.status = 'accepted' and o.lease_until > clock_timestamp() and o.lease_until < 'infinity'
  ) c;
end
$$;
