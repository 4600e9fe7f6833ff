-- name: stale_runs
select t.run_id::text, t.expected_seq, exists (select from deed.run_log l where l.run_id = t.run_id and l.run_seq = t.expected_seq),
  extract(epoch from pg_catalog.clock_timestamp() - t.since)::float8
from deed.run_stale t
order by t.since, t.run_id
limit 20;

-- name: projector_lag
select u.behind, extract(epoch from pg_catalog.clock_timestamp() - u.oldest)::float8
from deed.subscriptions s
cross join lateral deed.count_unread(array[s.id], 10000, true) u
where s.topic = 'deed.run_events' and s.name = 'projector' and u.oldest < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8);

-- name: unserved_steps
-- Queues of steps of runs that no worker serves.
select u.queue, u.steps, extract(epoch from pg_catalog.clock_timestamp() - u.oldest)::float8
from deed.unserved_queues() u
where u.oldest < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by u.oldest, u.queue
limit 20;

-- name: stuck_steps
-- Steps of which the log has an end that their engine has not recorded: none that it comes to is taken, so they are begun again for ever. Only a
-- claim that was lost is looked at: an end that was appended in the way of one costs it.
select s.run_id::text, s.step_id, s.attempt
from deed.run_steps s
where s.engine_attempt > 1 and s.verdict is distinct from 'HOLD_OVER' and exists (
  select from deed.run_log l
  where l.run_id = s.run_id and l.step_id = s.step_id and l.logical_attempt >= s.attempt and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
)
order by s.run_id, s.step_id
limit 20;

-- name: damaged_plans
-- Plans that were refused within a day as they are not what was stored, and the runs that have failed for it, of the newest ten thousand failures of steps.
(
  select 'plan ' || a.subject_id as what, null::text as step, extract(epoch from pg_catalog.clock_timestamp() - max(a.at))::float8 as seconds
  from deed.audit_log a
  where a.subject_type = 'plan' and a.reason = 'PLAN_INTEGRITY_VALIDATION_FAILED' and a.at > pg_catalog.clock_timestamp() - interval '1 day'
  group by a.subject_id
  order by max(a.at) desc
  limit 20
)
union all
(
  select f.run_id::text, f.step_id, extract(epoch from pg_catalog.clock_timestamp() - f.persisted_at)::float8
  from (
    select l.run_id, l.step_id, l.persisted_at, l.event_data
    from deed.run_log l
    where l.event_type = 'StepFailed' and l.persisted_at > pg_catalog.clock_timestamp() - interval '1 day'
    order by l.persisted_at desc
    limit 10000
  ) f
  where f.event_data -> 'error' ->> 'code' = 'PLAN_INTEGRITY_VALIDATION_FAILED'
  order by f.persisted_at desc
  limit 20
);
