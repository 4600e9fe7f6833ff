-- deed.set_topic: change a declared topic's settings, online; null leaves one
-- as it is.
--
-- A change of lanes takes effect when the lanes that are have all stopped at
-- one window, which takes a few seconds while relays run; nothing is lost, comes
-- twice or overtakes. From queue to stream: what was published before stays with
-- its pending rows, what comes after is read from the log. From stream to queue:
-- takes effect when the lanes of all subscriptions have stopped so; order is no
-- longer kept. Until then mode stream calls it off: each subscription's lanes are
-- made anew, and what was let go by then comes beside the stream. Until the caller's transaction ends only other changes of the same topic
-- are put off.
-- Raises DDNFD for an unknown topic, DDARG for bad settings, and for another mode or
-- ordering of deed's own, DDCON for a queue while one of the stream's subscriptions is
-- being brought what was published before it, 55P03 while another transaction that has
-- not ended is changing the topic.
create or replace function deed.set_topic(
  p_topic     text,
  p_mode      text default null,
  p_lanes     int default null,
  p_ordered   boolean default null,
  p_retention interval default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_topic   deed.topics%rowtype;
  v_window  bigint;
  v_version bigint;
  v_sub     int;
begin
  perform deed.check_topic(p_topic, p_mode, p_lanes, p_retention);
  if p_mode = 'stream' then
    v_window := deed.open_window('mark'); -- before the first write: see there
  end if;
  begin
    lock table deed.list_lock in row exclusive mode; -- see deed.level_list
    select t.* into v_topic from deed.topics t where t.topic = p_topic for update;
  exception when lock_not_available then
    raise exception 'set_topic: % is being changed by a transaction that has not ended', p_topic
      using errcode = '55P03', hint = 'deed doctor names it.';
  end;
  if v_topic.topic is null then
    raise exception 'set_topic: topic % is not declared', quote_literal(p_topic) using errcode = 'DDNFD';
  end if;
  if v_topic.own and (p_mode <> v_topic.mode or p_ordered <> v_topic.ordered) then
    raise exception 'set_topic: topic % is deed''s own: its lanes and retention can be changed, its mode and ordering cannot', quote_literal(p_topic)
      using errcode = 'DDARG';
  end if;
  if v_topic.mode = 'stream' and p_mode = 'queue' and exists (
    select from deed.backfills b where b.subscription = any (v_topic.subscriptions) and b.finished_at is null
  ) then
    raise exception 'set_topic: a subscription of topic % is still being brought what was published before it', quote_literal(p_topic)
      using errcode = 'DDCON', hint = 'Try again soon; a long transaction that began before may hold it up.';
  end if;
  update deed.topics t
  set ordered = coalesce(p_ordered, t.ordered), retention = coalesce(p_retention, t.retention), lanes = coalesce(p_lanes, t.lanes)
  where t.topic = p_topic;

  if v_topic.mode = 'queue' and p_mode = 'stream' then
    v_version := nextval('deed.list_seq');
    update deed.topics t set mode = 'stream', list_version = v_version where t.topic = p_topic;
    update deed.subscriptions s set since = v_version, since_window = v_window where s.id = any (v_topic.subscriptions);
  elsif v_topic.mode = 'stream' and (p_mode = 'queue' or p_lanes <> v_topic.lanes or exists (
    select from deed.relanings r where r.subscription = any (v_topic.subscriptions) and r.mode <> p_mode
  )) then
    foreach v_sub in array v_topic.subscriptions loop
      insert into deed.relanings as r (subscription, lanes, mode)
      values (v_sub, coalesce(p_lanes, v_topic.lanes), coalesce(p_mode, 'stream'))
      on conflict on constraint relanings_pkey do update set lanes = excluded.lanes,
        mode = case when p_mode is null then r.mode else excluded.mode end;
    end loop;
    if p_mode = 'queue' then
      perform deed.end_stream(p_topic); -- at once, if nothing has been read
    end if;
  end if;
end
$$;
