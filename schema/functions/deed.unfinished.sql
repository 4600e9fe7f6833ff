-- deed.unfinished: whether any of the subscriptions has something to do before
-- p_horizon from now: a message that is not dead, one that is to be tried again
-- (whenever that is due), or one from before the subscription's time that has
-- been committed and not been given to it yet.
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
as $$
declare
  v_horizon timestamptz := clock_timestamp() + p_horizon;
  v_now     pg_snapshot := pg_current_snapshot();
begin
  return exists (
      select from unnest(p_subscriptions) s(id)
      where (
          select p.id from deed.pending p
          where p.subscription = s.id and p.dead_at is null and not p.parked and p.ord <= v_horizon
          order by p.ord, p.id
          limit 1
        ) is not null
        or exists (
          select from deed.pending p
          where p.subscription = s.id and p.attempts > 0 and p.dead_at is null and not p.parked
        )
    )
    or exists (
      select from deed.backfills b
      left join deed.windows w on w.n = b.window_n
      where b.subscription = any (p_subscriptions) and b.finished_at is null
        and (not b.scanned or b.upto is not null
          -- what was running when it last looked has ended since
          or pg_snapshot_xmin(v_now) > pg_snapshot_xmin(b.seen)
          or exists (select from pg_snapshot_xip(b.seen) x where x < w.h and pg_visible_in_snapshot(x, v_now))
          or exists (
            select from deed.log l
            where l.xid >= pg_snapshot_xmax(b.seen) and l.xid < w.h and pg_visible_in_snapshot(l.xid, v_now)
          ))
    );
end
$$;
