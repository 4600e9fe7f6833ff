-- The statements of inner steps.

-- name: record
select result, until
from deed.record_steps($1::text[]::uuid[], $2::int[], $3::bigint[], $4::text[], $5::int[], $6::text[], $7::text[]::jsonb[], $8::timestamptz[],
  $9::float8[], make_interval(secs => $10::float8), $11::text)
order by ordinal;

-- name: history
-- What is recorded of the inner steps of a step, in the order of their events, and of its own failures.
select l.step_id, l.event_type, l.logical_attempt, coalesce(l.engine_attempt, 1), l.run_seq, l.emitted_at, coalesce((l.event_data ->> 'of')::int, 0), convert_to((l.event_data -> 'output')::text, 'UTF8'),
  convert_to((l.event_data -> 'error')::text, 'UTF8'), coalesce(l.event_data ->> 'reason', ''), coalesce((l.event_data ->> 'not_done')::bool, false), coalesce((l.event_data ->> 'key_n')::int, 1),
  (l.event_data ->> 'until')::timestamptz, coalesce((l.event_data ->> 'until')::timestamptz <= clock_timestamp(), false)
from deed.run_log l
where l.run_id = $1::text::uuid and l.run_seq > $2::bigint and (starts_with(l.step_id, $3::text || '/') or (l.step_id = $3::text and l.event_type = 'StepFailed'))
order by l.run_seq
limit $4::int;
