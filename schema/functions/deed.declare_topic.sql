-- deed.declare_topic: declare a topic; does nothing if it exists.
--
-- p_mode: 'queue' (each message has a row of its own, is claimed one by one and
-- may be slow) or 'stream' (read from the log in order, by lanes). Null leaves
-- a setting at its default: queue, 4 lanes, ordered by key, kept for 7 days.
-- Returns the stored settings, which may differ from the call's. Raises DDARG.
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
as $$
#variable_conflict use_column
declare
  v_base int;
begin
  perform deed.check_topic(p_topic, p_mode, p_lanes, p_retention);
  return query select false, t.mode, t.lanes, t.ordered, t.retention from deed.topics t where t.topic = p_topic;
  if found then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('deed.subscribe', 0));
  select coalesce(max(t.slot_base), 0) + 64 into v_base from deed.topics t;
  insert into deed.topics (topic, slot_base, mode, lanes, ordered, retention)
  values (p_topic, v_base, coalesce(p_mode, 'queue'), coalesce(p_lanes, 4), coalesce(p_ordered, true), coalesce(p_retention, interval '7 days'))
  on conflict do nothing;
  made := found;
  return query select made, t.mode, t.lanes, t.ordered, t.retention from deed.topics t where t.topic = p_topic;
end
$$;
