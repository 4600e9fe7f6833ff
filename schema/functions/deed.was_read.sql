-- deed.was_read: whether a lane had come past a message when it recorded a page.
--
-- The page is the lane's last up to p_n. The order is deed.page's. What is above a
-- window was not read up to it, whatever its transaction id looks like. Null if there
-- is no such page, or its windows are no longer kept.
create or replace function deed.was_read(
  p_subscription int,
  p_lane         int,
  p_n            bigint,
  p_slot         int,
  p_id           bigint,
  p_xid          xid8
) returns table (n bigint, passed boolean)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select g.n,
    (pg_visible_in_snapshot(p_xid, f.cur) and p_id <= f.upper) or (p_id <= f.restored_id and p_xid >= f.restored_h)
    or coalesce(
      ((pg_visible_in_snapshot(p_xid, t.cur) and p_id <= t.upper) or (p_id <= t.restored_id and p_xid >= t.restored_h))
        and case
          when g.slot = -2 then p_id <= f.base and p_id <= g.id
          when g.slot = -1 then p_id <= g.id
          when g.slot >= 1073741824 then ((p_id - 1) / 65536, p_slot, p_id) <= ((g.id - 1) / 65536, g.slot - 1073741824, g.id)
          when p_id <= f.base and g.id > f.base and (select w.low = f.base from deed.window_late(f.n, f.h, t.n, t.h) w) then true -- it came first, being late
          else ((p_id - 1) / 65536, p_slot, p_id) <= ((g.id - 1) / 65536, g.slot, g.id)
        end,
      false
    )
  from (
    select g.*
    from deed.progress g
    where g.subscription = p_subscription and g.lane = p_lane and g.n <= p_n
    order by g.n desc
    limit 1
  ) g
  left join deed.windows f on f.n = g.from_window
  left join deed.windows t on t.n = g.to_window
$$;
