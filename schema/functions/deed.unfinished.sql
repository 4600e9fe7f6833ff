-- deed.unfinished: whether any of the subscriptions has something to do before
-- p_horizon from now: a message that is not dead, one that is to be tried
-- again, whenever that is, or one from before the subscription's time that has
-- committed and that it has not been given yet.
create or replace function deed.unfinished(
  p_subscriptions int[],
  p_horizon       interval
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_horizon timestamptz := clock_timestamp() + p_horizon;
begin
  return exists (
      select from unnest(p_subscriptions) s(id)
      cross join lateral (
        select from deed.pending p
        where p.subscription = s.id and p.dead_at is null and not p.parked and p.ord <= v_horizon
        order by p.ord, p.id
        limit 1
      ) due
    )
    or exists (
      select from unnest(p_subscriptions) s(id)
      cross join lateral (
        select from deed.pending p
        where p.subscription = s.id and p.attempts > 0 and p.dead_at is null and not p.parked
        order by p.attempts
        limit 1
      ) retried
    )
    or exists (
      select from deed.backfills b
      left join deed.windows w on w.n = b.window_n
      where b.subscription = any (p_subscriptions) and b.finished_at is null
        and (not b.scanned or b.upto is not null or pg_snapshot_xmax(b.seen) < w.h
          or exists (
            select from pg_snapshot_xip(b.seen) x
            where x < w.h and pg_visible_in_snapshot(x, pg_current_snapshot())
          ))
    );
end
$$;
