-- deed.join_list: put a subscription in its topic's list, from the commit on
-- which publishers give it its messages. Returns whether it is in it.
--
-- Changes of one topic's list exclude each other, and are in the order of their
-- versions. Nobody waits for a transaction that has one to do, nor for a stream that
-- is being made a queue: then the result is false, nothing is locked, and deed.backfill
-- tries again.
create or replace function deed.join_list(
  p_subscription int
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
  v_topic   deed.topics%rowtype;
  v_name    text;
  v_version bigint;
begin
  select s.topic into v_name from deed.subscriptions s where s.id = p_subscription and s.list_version is null;
  if not found then
    return true;
  end if;
  -- What a stream finds in the log is not all that this one is owed: it joins the queue's.
  -- Asked before the topic's row is locked, which the caller may keep and the end of the
  -- stream needs, and once more under that.
  if exists (
    select from deed.topics t join deed.relanings r on r.subscription = any (t.subscriptions) where t.topic = v_name and r.mode = 'queue'
  ) then
    return false;
  end if;
  begin
    lock table deed.list_lock in row exclusive mode; -- see deed.level_list
    if not exists (select from deed.topics t where t.topic = v_name) then
      perform deed.declare_topic(v_name);
    end if;
    select t.* into v_topic from deed.topics t where t.topic = v_name for update;
    if not found then
      return false; -- it was removed meanwhile: deed.backfill declares it anew
    end if;
    if exists (select from deed.relanings r where r.subscription = any (v_topic.subscriptions) and r.mode = 'queue') then
      raise lock_not_available; -- which gives the locks back
    end if;
  exception when lock_not_available then
    return false;
  end;
  v_version := nextval('deed.list_seq');
  -- A stream is read from the log: from its first window, or from the mark on.
  update deed.subscriptions s
  set list_version = v_version,
    since = case when v_topic.mode = 'stream' then 0 end,
    since_window = case when v_topic.mode = 'stream' then case s.start when 'now' then s.start_window else 0 end end
  where s.id = p_subscription and s.list_version is null;
  if not found then
    return true; -- meanwhile
  end if;
  update deed.topics t
  set list_version = v_version, subscriptions = array(select x from unnest(t.subscriptions || p_subscription) x order by x)
  where t.topic = v_name;
  return true;
end
$$;
