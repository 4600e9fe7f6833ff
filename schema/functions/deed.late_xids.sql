-- deed.late_xids: the transactions that were running when a window was opened
-- and whose rows another snapshot sees, as far as they can have rows in the log.
--
-- They are those listed in the window's snapshot p_cur, and those from its end
-- up to the window's own id p_h, which were running and not listed. Of the
-- latter only those come that have rows: there may be millions that have none,
-- such as savepoints, so they are looked for in the log's index of transaction
-- ids, from one to the next. p_seen lists those that have not ended: none of
-- their rows are stepped over.
create or replace function deed.late_xids(
  p_cur  pg_snapshot,
  p_h    xid8,
  p_seen pg_snapshot
) returns xid8[]
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_xids xid8[];
  v_from xid8 := pg_snapshot_xmax(p_cur);
  v_upto xid8 := least(p_h, pg_snapshot_xmax(p_seen));
  v_stop xid8;
  v_next xid8;
begin
  v_xids := array(select x from pg_snapshot_xip(p_cur) x where x < p_h and pg_visible_in_snapshot(x, p_seen));
  while v_from < v_upto loop
    -- Up to the next that still runs: behind it are rows that nobody sees.
    v_stop := coalesce((select min(x::text::bigint)::text::xid8 from pg_snapshot_xip(p_seen) x where x >= v_from and x < v_upto), v_upto);
    loop
      select l.xid into v_next from deed.log l where l.xid >= v_from and l.xid < v_stop order by l.xid limit 1;
      exit when not found;
      v_xids := v_xids || v_next;
      v_from := (v_next::text::bigint + 1)::text::xid8;
    end loop;
    v_from := (v_stop::text::bigint + 1)::text::xid8;
  end loop;
  return v_xids;
end
$$;
