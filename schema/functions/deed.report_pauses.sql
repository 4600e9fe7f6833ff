-- deed.report_pauses: tell which of a process's subscriptions pause since their sink
-- is unavailable, why, and for how long.
--
-- The arrays are parallel. What was told before and is not named goes on again. A
-- process repeats it while there are any; what it has not repeated for a minute is
-- not shown, and removed by whoever reports next.
create or replace function deed.report_pauses(
  p_worker        uuid,
  p_name          text,
  p_subscriptions int[],
  p_whys          text[],
  p_ages          interval[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  delete from deed.sink_pauses p
  where (p.worker = p_worker and p.subscription <> all (p_subscriptions)) or p.seen_until < v_now - interval '1 hour';
  insert into deed.sink_pauses as p (subscription, worker, name, why, since, seen_until)
  select u.subscription, p_worker, p_name, u.why, v_now - u.age, v_now + interval '1 minute'
  from unnest(p_subscriptions, p_whys, p_ages) u(subscription, why, age)
  on conflict (subscription, worker) do update
  set why = excluded.why, since = excluded.since, seen_until = excluded.seen_until;
end
$$;
