-- deed.declare_topic: declare a topic; does nothing if it exists.
--
-- p_mode: 'queue' (each message has a row of its own, is claimed one by one and
-- may be slow) or 'stream' (read from the log in order, by lanes). Null leaves
-- a setting at its default: queue, 4 lanes, ordered by key, kept for 7 days.
-- Names from deed. on are of deed's own topics, which have been declared; deed.feedback
-- is made again if somebody had one of theirs and has removed it.
-- Returns the stored settings, which may differ from the call's. Raises DDARG, and
-- 55P03 while another transaction that has not ended declares it.
create or replace function deed.declare_topic(
  p_topic     text,
  p_mode      text default null,
  p_lanes     int default null,
  p_ordered   boolean default null,
  p_retention interval default null
) returns table (made boolean, mode text, lanes int, ordered boolean, retention interval)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_column
begin
  perform deed.check_topic(p_topic, p_mode, p_lanes, p_retention);
  return query select false, t.mode, t.lanes, t.ordered, t.retention from deed.topics t where t.topic = p_topic;
  if found then
    return;
  end if;
  if starts_with(p_topic, 'deed.') and p_topic <> 'deed.feedback' then
    raise exception 'declare_topic: topic % cannot be declared: names from deed. on are of what deed itself publishes; take another', quote_literal(p_topic)
      using errcode = 'DDARG';
  end if;
  begin
    insert into deed.topics (topic, slot_base, mode, lanes, ordered, retention, list_version, own)
    select p_topic, 64 * nextval('deed.topic_seq')::int, case when p_topic = 'deed.feedback' then 'stream' else coalesce(p_mode, 'queue') end, coalesce(p_lanes, 4),
      p_topic = 'deed.feedback' or coalesce(p_ordered, true), coalesce(p_retention, interval '7 days'), s.list_version, p_topic = 'deed.feedback'
    from deed.settings s
    on conflict (topic) do nothing;
    made := found;
  exception when lock_not_available then
    raise exception 'declare_topic: % is being declared by a transaction that has not ended', p_topic
      using errcode = '55P03', hint = 'deed doctor names it.';
  end;
  return query select made, t.mode, t.lanes, t.ordered, t.retention from deed.topics t where t.topic = p_topic;
end
$$;
