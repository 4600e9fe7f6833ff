-- deed.verify_steps: the part of deed.verify that is about the steps of runs that have begun, but for those of
-- tenants that were removed: each has ended, or waits for a step before it, or has a row by which it
-- goes on (nothing that lives is forgotten); what has ended is what the log says; and no run is left whose steps have all ended.
create or replace function deed.verify_steps() returns table (
  invariant text, tenant_id uuid, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
  with removed as materialized (
    select array(select r.tenant_id from deed.tenant_removals r) as ids
  ),
  runs as materialized (
    select r.run_id, r.tenant_id, r.status, r.plan_id, r.plan_version, r.engine, r.done, r.passed, r.failing from deed.runs r where r.tenant_id <> all ((select ids from removed)::uuid[])
  ),
  rows as materialized (
    select s.* from deed.run_steps s where s.tenant_id <> all ((select ids from removed)::uuid[])
  ),
  ends as materialized (
    select l.run_id, l.step_id, max(l.logical_attempt) as attempt, bool_or(l.event_type = 'StepCompleted') as completed, bool_or(l.event_type = 'StepSkipped') as skipped
    from deed.run_log l
    where l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped') and l.tenant_id <> all ((select ids from removed)::uuid[])
    group by l.run_id, l.step_id
  ),
  steps as materialized (
    select r.run_id, r.tenant_id, r.status, r.failing, p.step_id, p.queue, p.at_most_once, r.engine,
      coalesce(e.attempt, 0) as attempt, coalesce(e.completed, false) as completed, coalesce(e.skipped, false) as skipped, e.run_id is not null as has_end,
      p.place < 8 * octet_length(r.done) and get_bit(r.done, least(p.place, 8 * octet_length(r.done) - 1)) = 1 as done,
      p.place < 8 * octet_length(r.passed) and get_bit(r.passed, least(p.place, 8 * octet_length(r.passed) - 1)) = 1 as passed,
      exists (select from unnest(p.depends) u where u < 8 * octet_length(r.done) and get_bit(r.done, least(u, 8 * octet_length(r.done) - 1)) = 0) as waits,
      s.run_id is not null as has_row, s.attempt as row_attempt, s.verdict,
      (s.step_id, s.tenant_id, s.engine, s.at_most_once, s.queue)
        is not distinct from (p.step_id, r.tenant_id, r.engine, p.at_most_once, case
            when s.verdict = 'HOLD_OVER' then 'deed'
            when s.offer is not null and s.queue <> 'deed' then 'external:' || ( -- offered; a lost claim is the engines' again
              select convert_from(o.body, 'UTF8')::json -> 'steps' -> p.step_id ->> 'queue'
              from deed.plans o
              where o.tenant_id = p.tenant_id and o.plan_id = p.plan_id and o.plan_version = p.plan_version and p.kind = 'external'
            )
            else p.queue end) as row_is_sound
    from runs r
    join deed.plan_steps p on p.tenant_id = r.tenant_id and p.plan_id = r.plan_id and p.plan_version = r.plan_version
    left join rows s on s.run_id = r.run_id and s.place = p.place
    left join ends e on e.run_id = r.run_id and e.step_id = p.step_id
    where r.done is not null
  )
  select 'step of a run is forgotten, or is due twice', s.tenant_id, format('run %s is %s; step %s: ended %s, waits for another %s, due %s', s.run_id, s.status, s.step_id, s.done, s.waits, s.has_row)
  from steps s
  where s.status in ('RUNNING', 'PAUSED') and s.done::int + s.waits::int + s.has_row::int <> 1
  union all
  select 'step of a run has not ended as its events say', s.tenant_id, format('run %s, step %s: ended %s, succeeded %s', s.run_id, s.step_id, s.done, s.passed)
  from steps s
  where case
      when s.done then s.passed <> s.completed or not s.has_end
      -- One that was cancelled may have an end in the log that was in its engine's way: appended by a worker, before migration 0122.
      else s.passed or s.status <> 'CANCELLED' and (s.completed or s.skipped) end
  union all
  select 'step of a run is not the plan''s', s.tenant_id, format('run %s, step %s', s.run_id, s.step_id)
  from steps s
  where s.has_row and not (s.row_is_sound and s.row_attempt = s.attempt + case when s.verdict = 'HOLD_OVER' then 0 else 1 end)
  union all
  select 'step of a run that does not go on', s.tenant_id, format('run %s, step %s', s.run_id, s.step_id)
  from rows s
  left join runs r on r.run_id = s.run_id
  where r.run_id is null or r.done is null or r.status not in ('RUNNING', 'PAUSED')
    or not exists (select from steps o where o.run_id = s.run_id and o.step_id = s.step_id)
  union all
  select 'run is not where its steps say', r.tenant_id, format('run %s is %s, and a step of it has failed for good: %s', r.run_id, r.status, r.failing)
  from runs r
  left join (
    select s.run_id, bool_and(s.done) as done, bool_or(s.done and not s.completed and not s.skipped) as failing from steps s group by s.run_id
  ) a on a.run_id = r.run_id
  where (r.done is null and (r.passed is not null or r.failing)) or (r.done is not null and (
    a.run_id is null or r.failing <> a.failing or (r.status = 'RUNNING' and a.done) or (r.status = 'COMPLETED' and (r.failing or not a.done))
    or r.status in ('PENDING', 'APPROVED') or octet_length(r.done) is distinct from octet_length(r.passed)
  ))
$$;
