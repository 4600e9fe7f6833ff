-- deed.extend_deliveries: renew the leases of claimed deliveries.
--
-- Returns those whose claim is still the caller's; the others are lost. One that somebody has
-- locked, such as an operator whose transaction is open, is not renewed, and the caller's while its
-- lease lasts: it is not waited for, since all that the caller has in hand would lose theirs meanwhile.
create or replace function deed.extend_deliveries(
  p_ids    uuid[],
  p_claims bigint[],
  p_lease  interval
) returns uuid[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_held uuid[];
begin
  if p_lease is null or p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'extend_deliveries: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;
  v_held := array(
    select q.id
    from unnest(p_ids, p_claims) u(id, claim)
    cross join lateral (
      select c.id from deed.channel_outbox c where c.id = u.id and c.claim = u.claim and c.lease_until is not null for update skip locked
    ) q
  );
  -- In a statement of its own, which sees them as they were locked.
  update deed.channel_outbox c set lease_until = clock_timestamp() + p_lease where c.id = any (v_held);
  if cardinality(v_held) < cardinality(p_ids) then
    v_held := array(
      select q.id
      from unnest(p_ids, p_claims) u(id, claim)
      cross join lateral (
        select c.id from deed.channel_outbox c where c.id = u.id and c.claim = u.claim and c.lease_until > clock_timestamp()
      ) q
    );
  end if;
  return v_held;
end
$$;
