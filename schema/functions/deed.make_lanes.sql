-- deed.make_lanes: make the lanes of a stream that has none, and replace those
-- that are to be replaced once all of them have read up to the last window.
--
-- New lanes begin exactly where the old ones ended: nothing is lost, comes
-- twice or overtakes. Lanes are never numbered as others were before. If the
-- topic is to be a queue, what the windows from there on would have shown is
-- brought by deed.backfill, and so is what a new stream does not find in the log
-- any more. Nobody who has such a change open is waited for. The
-- caller holds the lock on the making of lanes.
create or replace function deed.make_lanes(
  p_subscription int
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_begin bigint;
  v_lanes int;
  v_base  int;
  v_topic text;
  v_first int;
  v_upto  bigint;
  v_since bigint;
  v_ask   deed.relanings%rowtype;
begin
  select r.* into v_ask from deed.relanings r where r.subscription = p_subscription for update skip locked;
  if not found and exists (select from deed.relanings r where r.subscription = p_subscription) then
    return;
  end if;
  -- Not while deed.end_stream is at it, nor while somebody has changed it and not committed.
  perform from deed.subscriptions s where s.id = p_subscription for no key update skip locked;
  if not found then
    return;
  end if;
  select s.since_window, s.since, t.lanes, t.slot_base, t.topic into v_begin, v_since, v_lanes, v_base, v_topic
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  where s.id = p_subscription and t.mode = 'stream';
  if v_ask.mode = 'stream' and not exists (select from deed.lanes l where l.subscription = p_subscription) then
    delete from deed.relanings r where r.subscription = p_subscription;
    v_ask := null;
  end if;
  if v_ask.subscription is not null then
    if v_ask.window_n is null then
      -- Each lane has stopped between two windows: they go on to the last of these.
      select max(l.paused_at) into v_ask.window_n
      from deed.lanes l
      where l.subscription = p_subscription
      having count(*) = count(l.paused_at);
      update deed.relanings r set window_n = v_ask.window_n where r.subscription = p_subscription;
    end if;
    if exists (
      select from deed.lanes l
      cross join lateral (
        select g.from_window, g.to_window
        from deed.progress g
        where g.subscription = l.subscription and g.lane = l.lane
        order by g.n desc
        limit 1
      ) at
      where l.subscription = p_subscription and not coalesce(at.to_window is null and at.from_window = v_ask.window_n, false)
    ) then
      return;
    end if;
    if v_ask.mode = 'queue' then
      perform from deed.topics t where t.topic = v_topic for update skip locked;
      if not found then
        return;
      end if;
      perform deed.end_stream(v_topic);
      return;
    end if;
    with ended as (
      delete from deed.lanes l where l.subscription = p_subscription returning l.*
    )
    insert into deed.former_lanes (subscription, lane, slot_from, slot_upto, kept_from, since)
    select e.subscription, e.lane, e.slot_from, e.slot_upto, e.kept_from, v_since from ended e;
    delete from deed.relanings r where r.subscription = p_subscription;
    v_begin := v_ask.window_n;
    v_lanes := v_ask.lanes;
  elsif v_begin is null or exists (select from deed.lanes l where l.subscription = p_subscription) then
    return;
  end if;
  if v_since = 0 and v_ask.subscription is null and exists (
    select from deed.backfills b where b.subscription = p_subscription and not b.scanned and b.finished_at is null
  ) and (
    exists (select from deed.kept k where k.slot between v_base and v_base + 63)
    or exists (select from deed.partitions p where p.moving is not null and p.emptied_at is null and p.dropped_at is null)
  ) then
    return; -- deed.backfill brings what has been moved out of the log, or is just being
  end if;
  if v_begin < 0 and v_since = 0 and v_ask.subscription is null then
    -- From a mark to a window that was opened after it: an earlier one would
    -- have the next show what had committed before. If the mark came from another
    -- cluster, with its transaction ids, any of this one is later.
    select w.n into v_upto
    from deed.windows m
    cross join pg_control_system() c
    join deed.windows w on w.n > 0
      and case
        when w.system_identifier = m.system_identifier then pg_visible_in_snapshot(m.h, w.cur)
        else w.system_identifier = c.system_identifier
      end
    where m.n = v_begin
    order by w.n desc
    limit 1;
    if v_upto is null then
      return; -- deed.backfill opens one
    end if;
  end if;
  select coalesce(max(g.lane), 0) into v_first from deed.progress g where g.subscription = p_subscription;
  insert into deed.lanes (subscription, lane, slot_from, slot_upto)
  select p_subscription, v_first + i, v_base + (i - 1) * 64 / v_lanes, v_base + i * 64 / v_lanes - 1
  from generate_series(1, v_lanes) i;
  insert into deed.progress (subscription, lane, n, fence, from_window, to_window)
  select p_subscription, v_first + i, 0, 0, v_begin, v_upto
  from generate_series(1, v_lanes) i;
  if v_ask.subscription is null then
    update deed.subscriptions s set since_lane = v_first where s.id = p_subscription;
  end if;
end
$$;
