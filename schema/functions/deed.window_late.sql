-- deed.window_late: how late rows between two windows are to be read.
--
-- xids are the transactions that ran when p_from was opened and had ended when
-- p_to was (deed.late_xids). What they wrote
-- below the base of p_from is late. Up to 10,000 such rows are taken by
-- transaction; if there are more, low is from where the log is read again, else
-- low is p_from's base. Raises DDLSE if a window is not the one that the caller
-- means, as after a failover: its number is then another window's.
create or replace function deed.window_late(
  p_from   bigint,
  p_from_h xid8,
  p_to     bigint,
  p_to_h   xid8,
  out xids xid8[],
  out low  bigint
) returns record
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_p record;
  v_c record;
begin
  select w.base, w.h, w.cur, w.system_identifier into v_p from deed.windows w where w.n = p_from and w.h = p_from_h;
  select w.cur, w.system_identifier into v_c from deed.windows w where w.n = p_to and w.h = p_to_h;
  if v_p is null or v_c is null then
    raise exception 'window_late: window % or % is not what it was', p_from, p_to using errcode = 'DDLSE',
      hint = 'Read the lane''s position again.';
  end if;
  low := v_p.base;
  if v_p.system_identifier <> v_c.system_identifier then
    return; -- xids is null: those numbers are another cluster's
  end if;
  xids := deed.late_xids(v_p.cur, v_p.h, v_c.cur);
  if cardinality(xids) = 0 then
    return;
  end if;
  if (
    select count(*)
    from (
      select from unnest(xids) e(xid)
      cross join lateral (
        select from deed.log l where l.xid = e.xid and l.id <= v_p.base limit 10001
      ) l
      limit 10001
    ) l
  ) > 10000 then
    -- Whoever got an id of h or more has numbers above that window's base.
    low := coalesce((
      select w.base from deed.windows w
      where w.h <= (select min(x) from unnest(xids) x) and w.system_identifier = v_c.system_identifier
      order by w.n desc
      limit 1
    ), 0);
  end if;
end
$$;
