-- deed.end_stream: make a stream a queue, once the lanes of all its
-- subscriptions have read up to their last windows.
--
-- What those windows did not see, and was published without pending rows, is
-- brought by deed.backfill, as for a subscription that begins there. Called by
-- deed.make_lanes, deed.set_topic and deed.remove_subscription, under the lock on the topic's row. What is
-- parked is let go before, some thousand a call and what nobody has locked: leases
-- are renewed in the same statement.
create or replace function deed.end_stream(
  p_topic text
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_version bigint;
begin
  if not exists (select from deed.topics t where t.topic = p_topic and t.mode = 'stream') then
    return;
  end if;
  -- Nobody makes lanes meanwhile; who has one of the subscriptions locked is not
  -- waited for.
  if exists (
    select from deed.subscriptions s
    where s.topic = p_topic and s.id not in (
      select l.id from (select o.id from deed.subscriptions o where o.topic = p_topic for update skip locked) l
    )
  ) then
    return;
  end if;
  if exists (
    select from deed.subscriptions s
    join deed.lanes l on l.subscription = s.id
    cross join lateral (
      select g.from_window, g.to_window
      from deed.progress g
      where g.subscription = l.subscription and g.lane = l.lane
      order by g.n desc
      limit 1
    ) at
    left join deed.relanings r on r.subscription = s.id
    where s.topic = p_topic and not coalesce(at.to_window is null and at.from_window = r.window_n, false)
  ) then
    return;
  end if;
  -- Of each key the free one last: until then the others stand behind it.
  update deed.pending p set parked = false, key_hash = null
  where p.ctid = any (array(
    select q.ctid
    from deed.subscriptions s
    cross join lateral (
      select o.ctid
      from deed.pending o
      where o.subscription = s.id and o.key_hash is not null and (o.parked or not exists (
        select from deed.pending b where b.subscription = o.subscription and b.key_hash = o.key_hash and b.parked offset 0
      ))
      limit 5000
      for update skip locked
    ) q
    where s.topic = p_topic
    limit 5000
  ));
  if exists (
    select from deed.subscriptions s
    join deed.pending p on p.subscription = s.id and p.key_hash is not null
    where s.topic = p_topic
  ) then
    return; -- the next time
  end if;
  begin
    lock table deed.list_lock in row exclusive mode nowait; -- see deed.level_list
  exception when lock_not_available then
    return; -- the next time
  end;
  v_version := nextval('deed.list_seq');
  insert into deed.backfills as b (subscription, made_by, began_at)
  select s.id, pg_current_xact_id(), clock_timestamp() from deed.subscriptions s where s.topic = p_topic and s.list_version is not null
  on conflict (subscription) do update
  set made_by = excluded.made_by, began_at = excluded.began_at, window_n = null, reached = 0, slot = -1, id = 0, scanned = false, seen = null, upto = null, late_id = 0,
    finished_at = null;
  with ended as (
    delete from deed.lanes l using deed.subscriptions s where s.topic = p_topic and l.subscription = s.id
    returning l.*, s.since
  )
  insert into deed.former_lanes (subscription, lane, slot_from, slot_upto, kept_from, since)
  select e.subscription, e.lane, e.slot_from, e.slot_upto, e.kept_from, e.since from ended e;
  update deed.subscriptions s
  set since = null, since_window = null, since_lane = null, read_since = s.since, list_version = v_version,
    read_window = coalesce((select r.window_n from deed.relanings r where r.subscription = s.id), s.since_window)
  where s.topic = p_topic and s.list_version is not null;
  delete from deed.relanings r using deed.subscriptions s where s.topic = p_topic and r.subscription = s.id;
  update deed.topics t set mode = 'queue', list_version = v_version where t.topic = p_topic;
end
$$;
