-- deed.next_claimable: the due time of the first message of a queue that may be
-- claimed now, from p_from on and before p_upto; null if there is none.
--
-- For who cannot claim from the beginning, since the index entries of what is
-- finished, which an old snapshot keeps alive, take a claim longer than it
-- may. It reads only, so it may take its time.
create or replace function deed.next_claimable(
  p_subscription int,
  p_from         timestamptz,
  p_upto         timestamptz
) returns timestamptz
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp(); -- a variable, for the index condition
  v_ord timestamptz;
begin
  select p.ord into v_ord
  from deed.pending p
  where p.subscription = p_subscription
    and p.dead_at is null and not p.parked
    and p.ord >= p_from and p.ord < p_upto and p.ord <= v_now
    and (p.lease_until is null or p.lease_until <= v_now)
  order by p.ord, p.id
  limit 1;
  return v_ord;
end
$$;
