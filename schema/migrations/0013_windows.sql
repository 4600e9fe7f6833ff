-- breaking: no
-- What one transaction asks for holds up nobody: locks that only deed's
-- functions can take, a version of the list of subscriptions for each topic,
-- and ids that are never given out twice.

-- Empty tables, for their locks. Advisory locks are anyone's; a row lock would
-- take a transaction id, and then a window's base cannot move.
create table deed.window_lock (none boolean, constraint window_lock_stays_empty check (false));
create table deed.list_lock (none boolean, constraint list_lock_stays_empty check (false));
create table deed.lane_lock (none boolean, constraint lane_lock_stays_empty check (false));
create table deed.partition_lock (none boolean, constraint partition_lock_stays_empty check (false));
create table deed.retention_lock (none boolean, constraint retention_lock_stays_empty check (false));
create table deed.history_lock (none boolean, constraint history_lock_stays_empty check (false));
create table deed.provider_lock (none boolean, constraint provider_lock_stays_empty check (false));

do $$
declare
  v_table text;
begin
  foreach v_table in array array['window_lock', 'list_lock', 'lane_lock', 'partition_lock', 'retention_lock', 'history_lock', 'provider_lock'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
  end loop;
end
$$;

-- What is counted here is not taken back, by a rollback or by the removal of
-- what it named. Marks are windows of which n is below 0.
create sequence deed.topic_seq as int cache 1 no cycle;
create sequence deed.subscription_seq as int cache 1 no cycle;
create sequence deed.mark_seq as bigint cache 1 no cycle;
select setval('deed.topic_seq', max(t.slot_base) / 64) from deed.topics t having max(t.slot_base) > 0;
select setval('deed.subscription_seq', max(s.id)) from deed.subscriptions s having max(s.id) > 0;

-- A row of the log carries its topic's version. Of a topic that nobody has
-- declared it is settings.list_version, up to which nothing is under way.
alter table deed.topics add column list_version bigint not null default 0;
update deed.topics t set list_version = s.list_version from deed.settings s;
alter table deed.topics alter column list_version drop default;

-- Null until the subscription is in its topic's list. since_lane: lanes with
-- higher numbers are those of the stream that it is now.
alter table deed.subscriptions
  alter column list_version drop not null,
  add column since_lane int;
update deed.subscriptions s
set since_lane = coalesce((
  select max(g.lane) from deed.progress g where g.subscription = s.id and g.from_window < s.since_window
), 0)
where exists (select from deed.lanes l where l.subscription = s.id);

drop function if exists deed.open_window();
