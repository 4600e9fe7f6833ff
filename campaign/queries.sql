-- The statements of campaigns. Each is prepared by NewWorker, so that one that does not fit
-- the installed schema fails there and in CI, not at first use.

-- name: put
select campaign_id::text, content_id::text
from deed.put_campaign($1::text, $2::text::jsonb, $3::text::uuid, $4::text::uuid);

-- name: audience
-- One that is made by this has nothing read yet, and is not seen beside it.
select p.audience_id::text, p.status = 'ready', p.members, coalesce(a.rows_read, 0), coalesce(a.left_out, 0)
from deed.put_audience($1::text, $2::text, $3::text::uuid, $4::text::uuid) p
left join deed.audiences a on a.id = p.audience_id;

-- name: find_audience
select a.id::text, a.status = 'ready', a.members, a.rows_read, a.left_out, a.channel
from deed.audiences a
where a.tenant_id = coalesce($3::text::uuid, deed.current_tenant()) and a.workspace_id = $2::text::uuid and a.name = $1::text;

-- name: sample
select m.n, coalesce(m.address, ''), m.contact_id::text, coalesce(m.zone, ''), m.data::text
from deed.audience_members m
where m.audience_id = $1::text::uuid and m.n >= $2::bigint
order by m.n
limit $3::int;

-- name: segment
-- Who has an address of the type, the one that is known to be theirs, or the oldest. $5 is the purpose
-- to which they are to have agreed, for the channel $4.
select c.id::text, i.value, coalesce(c.zone, ''), c.data::text
from deed.contacts c
cross join lateral (
  select o.value
  from deed.contact_identities o
  where o.contact_id = c.id and o.type = $3::text
  order by o.verified_at is null, o.created_at, o.value
  limit 1
) i
where c.tenant_id = coalesce($1::text::uuid, deed.current_tenant()) and c.erased_at is null and c.merged_into is null and c.data @@ $2::text::jsonpath
  and ($5::text is null or exists (
    select from deed.consents_of(array[c.id]) s where s.channel = $4::text and s.purpose = $5::text and s.state = 'granted'
  ))
order by c.id;

-- name: add
select deed.add_audience_members($1::text::uuid, $2::bigint, $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[]::uuid[], $7::text::uuid, null, $8::bigint, $9::bigint);

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

-- name: runs
select r.id::text, r.tenant_id::text, r.workspace_id::text, r.campaign_id::text, c.name, r.status, r.channel, r.provider, r.purpose, r.request_id, r.audience_id::text,
  r.content_id::text, r.members, r.created_at, r.scheduled_for, r.expires_at, r.started_at, r.paused_at, r.cancelled_at, r.finished_at
from deed.campaign_runs r
join deed.campaigns c on c.id = r.campaign_id
where ($1::text is null or r.id < $1::text::uuid) and ($2::text is null or r.tenant_id = $2::text::uuid) and ($3::text is null or r.status = $3::text)
  and ($4::text is null or c.name = $4::text)
order by r.id desc -- as they were deployed: UUIDv7
limit $5::int;

-- name: run
select r.id::text, r.tenant_id::text, r.workspace_id::text, r.campaign_id::text, c.name, r.status, r.channel, r.provider, r.purpose, r.request_id, r.audience_id::text,
  r.content_id::text, r.members, r.created_at, r.scheduled_for, r.expires_at, r.started_at, r.paused_at, r.cancelled_at, r.finished_at
from deed.campaign_runs r
join deed.campaigns c on c.id = r.campaign_id
where r.id = $1::text::uuid;

-- name: progress
select j.waiting, j.lost, o.queued, o.sending, o.in_doubt, o.held, o.sent, o.skipped, o.missed, o.failed, o.dead
from (
  select coalesce(sum(q.upto_n - q.from_n + 1) filter (where q.expanded_at is null and q.finished_at is null), 0)::bigint as waiting,
    coalesce(sum(q.upto_n - q.from_n + 1) filter (where q.expanded_at is null and q.finished_at is not null), 0)::bigint as lost
  from deed.job_queue q
  where q.run_id = $1::text::uuid
) j
cross join (
  select count(*) filter (where c.status = 'queued') as queued, count(*) filter (where c.status = 'sending') as sending,
    count(*) filter (where c.doubt_since is not null) as in_doubt, count(*) filter (where c.held_at is not null) as held,
    count(*) filter (where c.status in ('sent', 'called', 'posted')) as sent, count(*) filter (where c.status = 'skipped' and not m.missed) as skipped,
    count(*) filter (where c.status = 'skipped' and m.missed) as missed, count(*) filter (where c.status = 'failed') as failed, count(*) filter (where c.status = 'dead') as dead
  from deed.channel_outbox c
  cross join lateral (select coalesce(split_part(c.skip_reason, ';', 1) in ('cancelled', 'expired'), false) as missed) m
  where c.run_id = $1::text::uuid
) o;

-- name: reasons
-- The ten that are most frequent, in the order of that.
select c.status, split_part(coalesce(c.skip_reason, c.last_error, ''), ':', 1), count(*)
from deed.channel_outbox c
where c.run_id = $1::text::uuid and c.status in ('skipped', 'failed', 'dead')
group by 1, 2
order by 3 desc, 1, 2
limit 10;

-- name: trace
select r.status, j.from_n, j.id::text, j.status, j.attempts, coalesce(j.last_error, ''), coalesce(c.id::text, ''), coalesce(c.status, ''), coalesce(c.contact_id::text, ''),
  case when c.sent_at is null then coalesce(c.skip_reason, c.doubt_reason, c.last_error, '') else '' end, coalesce(c.provider_message_id, ''), coalesce(c.id::text, j.id::text)
from deed.campaign_runs r
join deed.job_queue j on j.run_id = r.id
left join deed.channel_outbox c on c.run_id = j.run_id and c.job_id = j.id
where r.id = $1::text::uuid and (j.from_n > $2::bigint or (j.from_n = $2::bigint and c.id > $3::text::uuid))
order by j.from_n, c.id
limit $4::int;
