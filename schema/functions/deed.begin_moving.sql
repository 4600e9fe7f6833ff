-- deed.begin_moving: note that a partition goes, and from where on its messages
-- are to be moved out. restarts counts how often in a row it began anew. For
-- deed.retention_step.
create or replace function deed.begin_moving(
  p_n    int,
  p_snap pg_snapshot
) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  update deed.partitions p
  set moving = p_snap, moving_window = (select max(w.n) from deed.windows w),
    read_window = greatest(p.read_window, 0, deed.newest_read()),
    moved_subscription = -1, moved_id = p.from_id - 1, moved_at = null, emptied_at = null,
    restarts = case when p.moving is null then 0 else p.restarts + 1 end,
    tried_at = case when p.moving is not null and p.restarts >= 2 then clock_timestamp() end
  where p.n = p_n
$$;
