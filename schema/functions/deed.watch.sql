-- deed.watch: what a process that drains several subscriptions asks for news.
--
-- seq is the log's number now. ready names those of p_subscriptions that have
-- something to claim at or above their p_floors; it is null when the log has
-- not moved since p_seq (null: look in any case). One statement serves a
-- process, however many subscriptions it drains.
create or replace function deed.watch(
  p_seq           bigint,
  p_subscriptions int[],
  p_floors        timestamptz[]
) returns table (seq bigint, ready int[])
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  seq := pg_sequence_last_value('deed.log_seq');
  if seq is null then
    raise exception 'watch: deed.log_seq cannot be read by this role' using errcode = 'DDCON';
  end if;
  if seq is distinct from p_seq then
    select coalesce(array_agg(s.id), '{}') into ready
    from unnest(p_subscriptions, p_floors) s(id, floor)
    cross join lateral (
      select from deed.pending p
      where p.subscription = s.id and p.dead_at is null and not p.parked
        and p.ord >= s.floor and p.ord <= v_now
        and (p.lease_until is null or p.lease_until <= v_now)
      order by p.ord, p.id
      limit 1
    ) due;
  end if;
  return next;
end
$$;
