-- The statements of package run.

-- name: create
select run_id::text, created
from deed.create_run($1::text, $2::text, $3::text, $4::text::jsonb, $5::text, $6::text, $7::bytea, coalesce($8::text, 'local'),
  $9::text::uuid, $10::text::uuid, $11::text, $12::text::uuid);

-- name: start
select run_id::text, created, status
from deed.start_run($1::text, $2::text, $3::text, $4::text::jsonb, $5::text, $6::text, $7::text::uuid, $8::text::uuid, $9::text, $10::text::uuid);

-- name: start_many
-- The arguments are arrays of start's.
select run_id::text, created, status
from deed.start_requests($1::text[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[], $7::text[]::uuid[], $8::text[]::uuid[], $9::text[], $10::text[]::uuid[])
order by ordinal;

-- name: start_and_claim
-- The arguments are start_many's, and an engine's.
select run_id::text, created, status, waits, place, claim, tenant_id::text, step_id, at_most_once, plan_id, plan_version, plan_sha256, convert_to(input::text, 'UTF8')
from deed.start_and_claim($1::text[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[], $7::text[]::uuid[], $8::text[]::uuid[], $9::text[], $10::text[]::uuid[],
  $11::text[], $12::text, $13::int, make_interval(secs => $14::float8))
order by ordinal;

-- name: stop
select deed.stop_run($1::text::uuid, $2::text, $3::text);

-- name: approve
select true from deed.approve_run($1::text::uuid, $2::text, $3::text);

-- name: retry
select deed.retry_step($1::text::uuid, $4::text, $2::text, $5::bool, $3::text);

-- name: append
select run_seq, event_id::text, repeated
from deed.append_events($1::text[]::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::timestamptz[], $7::text[]::jsonb[],
  $8::text[]::uuid[], $9::text[]::uuid[], $10::text)
order by ordinal;

-- name: try_append
-- Without a number: of a run that somebody else has locked.
select run_seq, event_id::text, repeated
from deed.try_append_events($1::text[]::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::timestamptz[], $7::text[]::jsonb[],
  $8::text[]::uuid[], $9::text[]::uuid[], $10::text)
order by ordinal;

-- name: list
select r.run_id::text, r.tenant_id::text, r.project, r.environment, r.plan_id, r.plan_version, r.engine, r.status, r.created_at, r.started_at, r.finished_at,
  r.redacted_at, coalesce(r.original_run_id::text, ''), coalesce(r.parent_run_id::text, ''), coalesce(r.parent_step_id, ''),
  (select s.since from deed.run_stale s where s.run_id = r.run_id), r.differing
from deed.runs r
where ($1::text is null or r.run_id < $1::text::uuid) and ($2::text is null or r.tenant_id = $2::text::uuid) and ($3::text is null or r.status = $3::text)
  and ($4::text is null or r.plan_id = $4::text) and ($5::text is null or r.project = $5::text) and ($6::text is null or r.environment = $6::text)
  and (not $7::bool or r.run_id = any (array(select s.run_id from deed.run_stale s))) and ($8::float8 is null or r.created_at >= clock_timestamp() - make_interval(secs => $8::float8))
  and ($10::text[] is null or r.run_id = any (array(
    select s.run_id from deed.run_steps s
    where s.queue = any ($10::text[]) and (s.ready or s.process_after <= clock_timestamp()) and (s.lease_until is null or s.lease_until <= clock_timestamp())
  )))
order by r.run_id desc
limit $9::int;

-- name: unserved
select u.queue, u.steps, u.oldest from deed.unserved_queues() u order by u.oldest, u.queue;

-- name: workers
select w.worker, w.queues, w.started_at, w.seen_until
from deed.run_workers w
where w.seen_until > clock_timestamp()
order by w.worker, w.started_at;

-- name: run
select r.run_id::text, r.tenant_id::text, r.project, r.environment, r.plan_id, r.plan_version, r.engine, r.status, r.created_at, r.started_at, r.finished_at,
  r.redacted_at, coalesce(r.original_run_id::text, ''), coalesce(r.parent_run_id::text, ''), coalesce(r.parent_step_id, ''),
  (select s.since from deed.run_stale s where s.run_id = r.run_id), r.differing
from deed.runs r
where r.run_id = $1::text::uuid;

-- name: newest
select convert_to(s.snapshot::text, 'UTF8')
from deed.run_snapshots s
where s.run_id = $1::text::uuid and ($2::bigint is null or s.last_event_seq <= $2::bigint)
order by s.last_event_seq desc
limit 1;

-- name: events
select l.run_id, l.run_seq, deed.run_event_id(l.run_id, l.run_seq)::text, l.event_type, coalesce(l.step_id, ''), l.logical_attempt, coalesce(l.engine_attempt, 0),
  convert_to(l.event_data::text, 'UTF8'), encode(l.idempotency_key, 'hex'), l.emitted_at, l.persisted_at, coalesce(l.adapter_version, ''), convert_to(l.engine_run_ref::text, 'UTF8'),
  coalesce(l.caused_by_signal_id::text, ''), coalesce(l.parent_event_id::text, '')
from deed.run_log l
where l.run_id = $1::text::uuid and l.run_seq > $2::bigint
order by l.run_seq
limit $3::int;

-- name: snapshots
-- The newest snapshots of runs, the newest numbers in their logs, and of those that miss an
-- event which one; and whether they are redacted.
select convert_to(s.snapshot::text, 'UTF8'), coalesce(s.last_event_seq, 0), coalesce(l.run_seq, 0), coalesce(t.expected_seq, 0), r.redacted_at is not null, clock_timestamp()
from unnest($1::text[]::uuid[]) with ordinality u(run_id, n)
left join deed.runs r on r.run_id = u.run_id
left join lateral (
  select o.snapshot, o.last_event_seq from deed.run_snapshots o where o.run_id = u.run_id order by o.last_event_seq desc limit 1
) s on true
left join lateral (
  select o.run_seq from deed.run_log o where o.run_id = u.run_id order by o.run_seq desc limit 1
) l on true
left join deed.run_stale t on t.run_id = u.run_id
order by u.n;

-- name: tails
select l.run_id, l.run_seq, deed.run_event_id(l.run_id, l.run_seq)::text, l.event_type, coalesce(l.step_id, ''), l.logical_attempt, coalesce(l.engine_attempt, 0),
  convert_to(l.event_data::text, 'UTF8'), encode(l.idempotency_key, 'hex'), l.emitted_at, l.persisted_at, coalesce(l.adapter_version, ''), convert_to(l.engine_run_ref::text, 'UTF8'),
  coalesce(l.caused_by_signal_id::text, ''), coalesce(l.parent_event_id::text, '')
from unnest($1::text[]::uuid[], $2::bigint[]) u(run_id, after)
cross join lateral (
  select o.* from deed.run_log o where o.run_id = u.run_id and o.run_seq > u.after order by o.run_seq limit $3::int
) l
order by l.run_id, l.run_seq;

-- name: store
select s::text
from deed.store_snapshots($1::text[]::uuid[], $2::bigint[], $3::text[]::jsonb[], $4::boolean[], $5::text[]::uuid[], $6::bigint[], $7::bigint[]) s;

-- name: stale
-- And those that are behind though no message says so.
select t.run_id::text, greatest(t.expected_seq, t.got_seq) from deed.run_stale t
union all
select b.run_id::text, b.seq from deed.runs_behind() b;

-- name: stored
-- All snapshots of a run after a number, oldest first.
select s.last_event_seq, convert_to(s.snapshot::text, 'UTF8')
from deed.run_snapshots s
where s.run_id = $1::text::uuid and s.last_event_seq > $2::bigint
order by s.last_event_seq;

-- name: replace
select deed.replace_snapshots($1::text::uuid, $2::bigint, $3::text::jsonb, $4::boolean);

-- name: ids
select r.run_id::text from deed.runs r where $1::text is null or r.run_id > $1::text::uuid order by r.run_id limit $2::int;

-- name: redact
select deed.redact_run($1::text::uuid, $2::text, $3::text);

-- name: retain
select did, week, runs from deed.retain_runs(make_interval(secs => $1::float8));

-- name: due
-- The steps by which a run goes on.
select s.step_id,
  case
    when s.claim is not null then 'CLAIMED'
    when s.verdict = 'HOLD_OVER' and s.process_after > clock_timestamp() then 'HELD'
    when s.ready or s.process_after <= clock_timestamp() then 'READY'
    else 'WAITING' end,
  s.attempt, s.engine_attempt, s.lost_claims, s.queue, nullif(s.process_after, 'infinity'), s.begun_at, coalesce(s.claimed_by, ''), s.lease_until
from deed.run_steps s
where s.run_id = $1::text::uuid
order by s.place;
