-- deed.make_lanes: make the lanes of a stream that has none, and replace those
-- that are to be replaced once all of them have read up to the last window.
--
-- New lanes begin exactly where the old ones ended: nothing is lost, comes
-- twice or overtakes. Lanes are never numbered as others were before. If the
-- topic is to be a queue, what the windows from there on would have shown is
-- brought by deed.backfill. The caller holds the lock on the stream's lanes.
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
  v_ask   deed.relanings%rowtype;
begin
  -- First this, which waits for whoever is just making the topic a queue.
  select r.* into v_ask from deed.relanings r where r.subscription = p_subscription for update;
  select s.since_window, t.lanes, t.slot_base, t.topic into v_begin, v_lanes, v_base, v_topic
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  where s.id = p_subscription and t.mode = 'stream';
  if v_ask.subscription is not null then
    if v_ask.window_n is null then
      -- Each lane has stopped between two windows: they go on to the last of these.
      select max(l.paused_at) into v_ask.window_n
      from deed.lanes l
      where l.subscription = p_subscription
      having count(*) = count(l.paused_at);
      update deed.relanings r set window_n = v_ask.window_n where r.subscription = p_subscription;
    end if;
    if v_ask.window_n is null or exists (
      select from deed.lanes l
      cross join lateral (
        select g.from_window, g.to_window
        from deed.progress g
        where g.subscription = l.subscription and g.lane = l.lane
        order by g.n desc
        limit 1
      ) at
      where l.subscription = p_subscription and not (at.to_window is null and at.from_window = v_ask.window_n)
    ) then
      return;
    end if;
    if v_ask.mode = 'queue' then
      perform deed.end_stream(v_topic);
      return;
    end if;
    with ended as (
      delete from deed.lanes l where l.subscription = p_subscription returning l.*
    )
    insert into deed.former_lanes (subscription, lane, slot_from, slot_upto)
    select e.subscription, e.lane, e.slot_from, e.slot_upto from ended e;
    delete from deed.relanings r where r.subscription = p_subscription;
    v_begin := v_ask.window_n;
    v_lanes := v_ask.lanes;
  elsif v_begin is null or exists (select from deed.lanes l where l.subscription = p_subscription) then
    return;
  end if;
  select coalesce(max(g.lane), 0) into v_first from deed.progress g where g.subscription = p_subscription;
  insert into deed.lanes (subscription, lane, slot_from, slot_upto)
  select p_subscription, v_first + i, v_base + (i - 1) * 64 / v_lanes, v_base + i * 64 / v_lanes - 1
  from generate_series(1, v_lanes) i;
  insert into deed.progress (subscription, lane, n, fence, from_window)
  select p_subscription, v_first + i, 0, 0, v_begin
  from generate_series(1, v_lanes) i;
end
$$;
