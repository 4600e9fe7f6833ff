-- deed.stream_states: how streams stand with a message that they read from the
-- log (O16):
--   waiting    the stream has not come to it yet
--   delivered  by this page of this lane, then and by that worker
--   passed     the stream has gone past it, and no record says more: the page's
--              is no longer kept, or an older deed's does not tell what it put aside
--   lost       the page put it aside, and neither a pending row nor a receipt is
--              left of it (deed.verify)
--
-- No row comes for a subscription that has a pending row or a receipt of the
-- message, nor for one that is not owed it. A lane comes past each message once,
-- so the page is found by halving.
create or replace function deed.stream_states(
  p_id bigint
) returns table (subscription text, state text, worker text, delivered_at timestamptz, lane int, page bigint)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row    record;
  v_sub    record;
  v_page   record;
  v_lane   int;
  v_below  bigint;
  v_found  bigint;
  v_n      bigint;
  v_passed boolean;
  v_first  boolean;
begin
  select l.slot, l.xid, l.topic, l.list_version into v_row from deed.log l where l.id = p_id;
  for v_sub in
    select s.id, s.name, s.since is not null as is_stream
    from deed.subscriptions s
    join deed.topics t on t.topic = s.topic and v_row.slot between t.slot_base and t.slot_base + 63 -- not one of its name that was removed
    join deed.windows w on w.n = coalesce(s.since_window, case when s.start = 'now' then s.start_window else 0 end)
    where s.topic = v_row.topic and s.id <> 0
      and (s.since is null or v_row.list_version >= s.since)
      and not ((pg_visible_in_snapshot(v_row.xid, w.cur) and p_id <= w.upper) or (p_id <= w.restored_id and v_row.xid >= w.restored_h))
      and not exists (select from deed.pending p where p.subscription = s.id and p.slot = v_row.slot and p.id = p_id)
      and not exists (
        select from deed.receipts r
        where r.subscription = s.id and r.finished > 0 and int8range(r.min_id, r.max_id, '[]') @> p_id and p_id = any (r.ids)
      )
    order by s.name
  loop
    subscription := v_sub.name;
    state := case when v_sub.is_stream then 'waiting' end;
    worker := null;
    delivered_at := null;
    lane := null;
    page := null;
    -- Those that were replaced have the lower numbers.
    for v_lane in
      select o.lane
      from (
        select l.lane, l.slot_from, l.slot_upto from deed.lanes l where l.subscription = v_sub.id
        union all
        select l.lane, l.slot_from, l.slot_upto from deed.former_lanes l where l.subscription = v_sub.id
      ) o
      where v_row.slot between o.slot_from and o.slot_upto
      order by o.lane
    loop
      select r.n, r.passed into v_found, v_passed
      from deed.was_read(v_sub.id, v_lane, 9223372036854775807, v_row.slot, p_id, v_row.xid) r;
      continue when not coalesce(v_passed, false);
      state := 'passed';
      select min(g.n) into v_below from deed.progress g where g.subscription = v_sub.id and g.lane = v_lane;
      select r.passed into v_first from deed.was_read(v_sub.id, v_lane, v_below, v_row.slot, p_id, v_row.xid) r;
      exit when v_first; -- the record is no longer kept, or is a former lane's
      while v_found - v_below > 1 loop
        select r.n, r.passed into v_n, v_passed
        from deed.was_read(v_sub.id, v_lane, (v_found + v_below) / 2, v_row.slot, p_id, v_row.xid) r;
        if coalesce(v_passed, false) then
          v_found := v_n;
        else
          v_below := (v_found + v_below) / 2;
        end if;
      end loop;
      select g.worker, g.finished_at, g.lane, g.n, g.aside, g.aside_ids into v_page
      from deed.progress g
      where g.subscription = v_sub.id and g.lane = v_lane and g.n = v_found and p_id between g.min_id and g.max_id;
      if p_id = any (v_page.aside_ids) then
        state := 'lost';
      elsif v_page.aside = 0 or v_page.aside_ids is not null then
        state := 'delivered';
      end if;
      if found then
        worker := v_page.worker;
        delivered_at := case when state = 'delivered' then v_page.finished_at end;
        lane := v_page.lane;
        page := v_page.n;
      end if;
      exit;
    end loop;
    if state is not null then
      return next;
    end if;
  end loop;
end
$$;
