-- The statements of campaigns. Each is prepared by NewWorker, so that one that does not fit
-- the installed schema fails there and in CI, not at first use.

-- name: put
select campaign_id::text, content_id::text
from deed.put_campaign($1::text, $2::text::jsonb, $3::text::uuid, $4::text::uuid);

-- name: audience
select audience_id::text, status = 'ready', members
from deed.put_audience($1::text, $2::text, $3::text::uuid, $4::text::uuid);

-- name: add
select deed.add_audience_members($1::text::uuid, $2::bigint, $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[]::uuid[], $7::text::uuid);

-- name: finish
select deed.finish_audience($1::text::uuid, $2::bigint, $3::text::uuid);

-- name: deploy
select run_id::text, created
from deed.deploy_campaign($1::text::uuid, $2::text::uuid, $3::text, $4::text, $5::timestamptz, $6::text::jsonb, $7::text::uuid);

-- name: claim
select id::text, run_id::text, tenant_id::text, claim
from deed.claim_queued_jobs($1::text, $2::int, make_interval(secs => $3::float8));

-- name: expand
select coalesce(state, ''), coalesce(made, 0)
from deed.expand_job($1::text::uuid, $2::bigint, $3::text);

-- name: give_up
select coalesce(deed.give_up_job($1::text::uuid, $2::bigint, $3::text, $4::text), '');

-- name: roll_up
select looked, ended, wait
from deed.roll_up($1::int, $2::text);

-- name: sweep
select deed.sweep_runs($1::int, $2::text);

-- name: unfinished
-- Jobs that are due, or will be within that time, and those whose deliveries are under way
-- and not held.
select exists (
  select from deed.job_queue j where j.status = 'queued' and j.process_after <= clock_timestamp() + make_interval(secs => $1::float8)
) or exists (
  select from deed.job_queue j join deed.campaign_runs r on r.id = j.run_id where j.status = 'locked' and r.paused_at is null
);

-- name: content
select r.channel, r.purpose, coalesce(r.options ->> 'from', ''), coalesce(r.options ->> 'reply_to', ''),
  coalesce(c.subject, ''), coalesce(c.text, ''), coalesce(c.html, ''), coalesce(c.script, '')
from deed.campaign_runs r
join deed.campaign_contents c on c.id = r.content_id
where r.id = $1::text::uuid;

-- name: pause
select deed.pause_run($1::text::uuid, $2::text, $3::text::uuid, $4::text);

-- name: resume
select deed.resume_run($1::text::uuid, $2::text, $3::text::uuid, $4::text);

-- name: cancel
select deed.cancel_run($1::text::uuid, $2::text, $3::text::uuid, $4::text);
