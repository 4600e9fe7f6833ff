-- deed.extend_messages: renew the leases of messages that are still this claim's, and
-- return those: a lease that ran out is renewed unless somebody has taken the message.
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
begin
  return query
  with mine as (
    select m.id
    from (select u.id, u.claim from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
    cross join lateral (
      select c.id from deed.channel_messages c where c.id = u.id and c.claim = u.claim and c.status = 'accepted' and c.lease_until < 'infinity' for no key update
    ) m
  )
  update deed.channel_messages m
  set lease_until = clock_timestamp() + p_lease
  from mine
  where m.id = mine.id
  returning m.id;
end
$$;
