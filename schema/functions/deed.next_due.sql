-- deed.next_due: in how many seconds a subscription has something to claim.
--
-- The nearest of the next due time and the end of a lease that is held now
-- (of the 1,000 oldest); 0 or less if something is claimable, null if nothing
-- is waiting.
create or replace function deed.next_due(
  p_subscription int
) returns double precision
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now  timestamptz := clock_timestamp(); -- a variable, for the index condition
  v_held timestamptz;
  v_next timestamptz;
begin
  select min(greatest(h.lease_until, h.ord)) into v_held
  from (
    select p.lease_until, p.ord
    from deed.pending p
    where p.subscription = p_subscription and p.dead_at is null and not p.parked and p.ord <= v_now
    order by p.ord, p.id
    limit 1000
  ) h;
  select p.ord into v_next
  from deed.pending p
  where p.subscription = p_subscription and p.dead_at is null and not p.parked and p.ord > v_now
  order by p.ord, p.id
  limit 1;
  return extract(epoch from least(v_held, v_next) - v_now);
end
$$;
