-- deed.report_calls: tell which call of its sinks a process has been at for
-- long: of each subscription the oldest.
--
-- The arrays are parallel: the call's first message, how many it was given, and
-- for how long it has been running. What was told before and is not named has
-- ended. A process repeats it while there are any; what it has not repeated for
-- a minute is not shown, and removed by whoever reports next.
create or replace function deed.report_calls(
  p_worker        uuid,
  p_name          text,
  p_subscriptions int[],
  p_ids           bigint[],
  p_message_ids   uuid[],
  p_messages      int[],
  p_ages          interval[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  delete from deed.running_calls c
  where (c.worker = p_worker and c.subscription <> all (p_subscriptions)) or c.seen_until < v_now - interval '1 hour';
  insert into deed.running_calls as c (subscription, worker, name, id, message_id, messages, since, seen_until)
  select u.subscription, p_worker, p_name, u.id, u.message_id, u.messages, v_now - u.age, v_now + interval '1 minute'
  from unnest(p_subscriptions, p_ids, p_message_ids, p_messages, p_ages) u(subscription, id, message_id, messages, age)
  on conflict (subscription, worker) do update
  set id = excluded.id, message_id = excluded.message_id, messages = excluded.messages, since = excluded.since, seen_until = excluded.seen_until;
end
$$;
