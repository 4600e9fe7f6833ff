-- deed.extend_deliveries: renew the leases of claimed deliveries.
--
-- Returns those whose claim is still the caller's; the others are lost.
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
  -- In a statement of its own, as in deed.attempt.
  perform q.id
  from (select u.* from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
  cross join lateral (
    select c.id from deed.channel_outbox c where c.id = u.id and c.claim = u.claim and c.lease_until is not null for update
  ) q;
  with mine as (
    -- in the order of the ids, as attempt and settle lock them
    select q.place
    from (select u.* from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
    cross join lateral (
      select c.ctid as place from deed.channel_outbox c
      where c.id = u.id and c.claim = u.claim and c.lease_until is not null
      for update
    ) q
  ),
  held as (
    update deed.channel_outbox c
    set lease_until = clock_timestamp() + p_lease
    from mine m
    where c.ctid = m.place
    returning c.id
  )
  select coalesce(array_agg(h.id), '{}') into v_held from held h;
  return v_held;
end
$$;
