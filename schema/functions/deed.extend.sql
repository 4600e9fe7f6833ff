-- deed.extend: renew the lease of claimed messages.
--
-- Returns the ids whose claim is still the caller's; the others are another
-- worker's by now and must not be finished or reported. p_lease null: the
-- subscription's.
create or replace function deed.extend(
  p_subscription int,
  p_claim        bigint,
  p_ids          bigint[],
  p_lease        interval default null
) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_held bigint[];
begin
  if p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'extend: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;
  with held as (
    update deed.pending p
    set lease_until = clock_timestamp() + coalesce(p_lease, s.lease)
    from deed.subscriptions s
    where p.subscription = p_subscription and p.id = any (p_ids) and p.claim = p_claim
      and p.id between (select min(i) from unnest(p_ids) i) and (select max(i) from unnest(p_ids) i)
      and s.id = p_subscription
    returning p.id
  )
  select coalesce(array_agg(h.id), '{}') into v_held from held h;
  return v_held;
end
$$;
