-- The statements of package engine/local.

-- name: claim
select run_id::text, place, claim, tenant_id::text, step_id, attempt, engine_attempt, lost_claims, key_n, at_most_once, parked, coalesce(verdict, ''), begun_at,
  plan_id, plan_version, plan_sha256, convert_to(input::text, 'UTF8')
from deed.claim_steps($1::text[], $2::text, $3::int, make_interval(secs => $4::float8), $5::text::uuid, p_suspects => $6::bool);

-- name: finish
select result
from deed.finish_steps($1::text[]::uuid[], $2::int[], $3::bigint[], $4::text[], $5::int[], $6::text[], $7::text[]::jsonb[], $8::timestamptz[],
  $9::bool[], $10::float8[], $11::timestamptz[], $12::text)
order by ordinal;

-- name: next
-- In how many seconds something is due that waits for its time. What was due when the exchange began, and was not made ready, somebody has locked: it is looked
-- for again as what comes by itself is.
select extract(epoch from s.process_after - clock_timestamp())::float8
from deed.run_steps s
where not s.ready and s.process_after > now() and s.process_after < 'infinity'
order by s.process_after
limit 1;

-- name: extend
select n from deed.extend_steps($1::text[]::uuid[], $2::int[], $3::bigint[], make_interval(secs => $4::float8)) n;

-- name: begin
select coalesce(deed.begin_step($1::text::uuid, $2::int, $3::bigint), '');

-- name: announce
select n from deed.announce_steps($1::text[]::uuid[], $2::int[], $3::bigint[], $4::timestamptz[], $5::text, $6::int[], $7::int[]) n;

-- name: results
-- What steps of a run came to, and of that what is asked for.
select l.step_id, l.event_type, case when u.output then convert_to((l.event_data -> 'output')::text, 'UTF8') end,
  case when u.failure then convert_to((l.event_data -> 'error')::text, 'UTF8') end
from unnest($2::text[], $3::bool[], $4::bool[]) u(step_id, output, failure)
cross join lateral (
  select o.step_id, o.event_type, o.event_data
  from deed.run_log o
  where o.run_id = $1::text::uuid and o.step_id = u.step_id and o.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
  order by o.logical_attempt desc
  limit 1
) l;

-- name: deliveries
-- What has become of the deliveries of steps, by their keys.
select coalesce(c.id::text, ''), coalesce(c.status, ''), coalesce(c.provider_message_id, ''), coalesce(c.skip_reason, c.last_error, ''),
  coalesce(c.unsettled_since is not null, false)
from unnest($1::text[]::uuid[], $2::bytea[]) with ordinality u(tenant_id, key, n)
left join lateral (
  select o.id, o.status, o.provider_message_id, o.skip_reason, o.last_error, o.unsettled_since
  from deed.channel_outbox o
  where o.tenant_id = u.tenant_id and o.workspace_id = '00000000-0000-0000-0000-000000000000' and o.idempotency_key = u.key
) c on true
order by u.n;

-- name: wake
select woken, next_run::text, next_place from deed.wake_steps($1::text::uuid, $2::int);

-- name: unfinished
-- Whether a step is due in one of these queues, is being done, or is due so many seconds from now.
select exists (
    select from unnest($1::text[]) q(queue) cross join lateral (
      select from deed.run_steps s where s.ready and s.engine = 'local' and s.queue = q.queue limit 1
    ) r
  ) or exists (
    select from deed.run_steps s
    where not s.ready and s.process_after <= clock_timestamp() + make_interval(secs => $2::float8) and s.queue = any ($1::text[])
  );

-- name: environment
select r.environment from deed.runs r where r.run_id = $1::text::uuid;

-- name: register
select deed.register_functions($1::bytea[]);

-- name: serve
select deed.serve_queues($1::text, $2::text::uuid, $3::text[], make_interval(secs => $4::float8));
