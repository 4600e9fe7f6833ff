-- The statements of package run.

-- name: create
select run_id::text, created
from deed.create_run($1::text, $2::text, $3::text, $4::text::jsonb, $5::text, $6::text, $7::bytea, coalesce($8::text, 'local'),
  $9::text::uuid, $10::text::uuid, $11::text, $12::text::uuid);

-- name: append
select run_seq, event_id::text, repeated
from deed.append_events($1::text[]::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::timestamptz[], $7::text[]::jsonb[],
  $8::text[]::uuid[], $9::text[]::uuid[], $10::text)
order by ordinal;

-- name: list
select r.run_id::text, r.tenant_id::text, r.project, r.environment, r.plan_id, r.plan_version, r.engine, r.status, r.created_at, r.started_at, r.finished_at,
  r.redacted_at, coalesce(r.original_run_id::text, ''), coalesce(r.parent_run_id::text, ''), coalesce(r.parent_step_id, ''),
  (select s.since from deed.run_stale s where s.run_id = r.run_id), r.differing
from deed.runs r
where ($1::text is null or r.run_id < $1::text::uuid) and ($2::text is null or r.tenant_id = $2::text::uuid) and ($3::text is null or r.status = $3::text)
  and ($4::text is null or r.plan_id = $4::text) and ($5::text is null or r.project = $5::text) and ($6::text is null or r.environment = $6::text)
  and (not $7::bool or r.run_id in (select s.run_id from deed.run_stale s)) and ($8::timestamptz is null or r.created_at >= $8::timestamptz)
order by r.run_id desc
limit $9::int;

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
