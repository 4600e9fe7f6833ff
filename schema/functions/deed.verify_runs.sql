-- deed.verify_runs: the part of deed.verify that is about runs, but for those of tenants that
-- were removed: no event is missing, each is what its key says and has its message while
-- the log has what was published then, every end has its start before it, and a run is where its
-- events say. That snapshots say what the events say, deed verify looks at: SQL cannot
-- project.
create or replace function deed.verify_runs() returns table (
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
  known as materialized (
    select r.run_id, r.tenant_id, r.status, r.plan_version from deed.runs r where r.tenant_id <> all ((select ids from removed)::uuid[])
  ),
  events as materialized (
    select l.run_id, l.tenant_id, l.run_seq, l.event_type, l.step_id, l.logical_attempt, l.caused_by_signal_id, l.idempotency_key, l.persisted_at
    from deed.run_log l
    where l.tenant_id <> all ((select ids from removed)::uuid[])
  ),
  logs as materialized (
    select e.run_id, min(e.tenant_id::text)::uuid as tenant_id, count(*) as events, max(e.run_seq) as newest, min(e.persisted_at) as first_at,
      (array_agg(e.event_type order by e.run_seq desc) filter (where left(e.event_type, 3) = 'Run'))[1] as last
    from events e
    group by e.run_id
  ),
  messages as (
    select m.key, count(*) as n
    from (
      select l.key from deed.log l where l.topic = 'deed.run_events'
      union all
      select k.key from deed.kept k where k.topic = 'deed.run_events'
    ) m
    group by m.key
  )
  select 'event of a run is missing', l.tenant_id, format('run %s has %s events, and the newest is number %s', l.run_id, l.events, l.newest)
  from logs l
  where l.events <> l.newest
  union all
  select 'events of no run', l.tenant_id, format('of run %s there are events, and it is not there', l.run_id)
  from logs l
  left join known r on r.run_id = l.run_id
  where r.run_id is null
  union all
  select 'run is not where its events say', r.tenant_id, format('run %s is %s; its last event of the run is %s', r.run_id, r.status, coalesce(l.last, 'none'))
  from known r
  left join logs l on l.run_id = r.run_id
  where r.status <> case coalesce(l.last, '')
    when '' then 'PENDING' when 'RunApproved' then 'APPROVED' when 'RunStarted' then 'RUNNING' when 'RunResumed' then 'RUNNING' when 'RunPaused' then 'PAUSED'
    when 'RunCompleted' then 'COMPLETED' when 'RunFailed' then 'FAILED' when 'RunCancelled' then 'CANCELLED' else r.status end
  union all
  select 'end of a step without its start', e.tenant_id, format('run %s, event %s: step %s, attempt %s', e.run_id, e.run_seq, e.step_id, e.logical_attempt)
  from events e
  left join events s on s.run_id = e.run_id and s.step_id = e.step_id and s.logical_attempt = e.logical_attempt and s.event_type = 'StepStarted' and s.run_seq < e.run_seq
  where e.event_type in ('StepCompleted', 'StepFailed') and s.run_id is null
  union all
  select 'event is not what its key says', e.tenant_id, format('run %s, event %s', e.run_id, e.run_seq)
  from events e
  join known r on r.run_id = e.run_id
  where e.idempotency_key <> deed.event_key(e.run_id, case
      when e.event_type in ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected') then e.caused_by_signal_id::text
      else coalesce(e.step_id, 'RUN') end, e.logical_attempt, e.event_type, r.plan_version)
  union all
  select 'event without its message', l.tenant_id, format('run %s has %s events, and of them %s were published', l.run_id, l.events, coalesce(m.n, 0))
  from logs l
  left join messages m on m.key = l.run_id::text
  where l.events <> coalesce(m.n, 0) and l.first_at > coalesce((
    select max(n.opened_at) from deed.partitions p join deed.partitions n on n.n = p.n + 1 where p.emptied_at is not null or p.moving is not null
  ), '-infinity')
  union all
  select 'run and its request differ', coalesce(r.tenant_id, q.tenant_id), format('run %s', coalesce(r.run_id, q.run_id))
  from known r
  full join (select o.run_id, o.tenant_id from deed.run_requests o where o.tenant_id <> all ((select ids from removed)::uuid[])) q on q.run_id = r.run_id
  where r.run_id is null or q.run_id is null or q.tenant_id <> r.tenant_id
  union all
  select 'snapshot of a run is ahead of its log', s.tenant_id, format('run %s has %s events, and a snapshot after number %s', s.run_id, coalesce(l.newest, 0), s.newest)
  from (select p.run_id, min(p.tenant_id::text)::uuid as tenant_id, max(p.last_event_seq) as newest from deed.run_snapshots p where p.tenant_id <> all ((select ids from removed)::uuid[]) group by p.run_id) s
  left join logs l on l.run_id = s.run_id
  where s.newest > coalesce(l.newest, 0)
$$;
