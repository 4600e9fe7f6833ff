-- The statements of campaigns. Each is prepared by NewWorker, so that one that does not fit
-- the installed schema fails there and in CI, not at first use.

-- name: put
select campaign_id::text, content_id::text
from deed.put_campaign($1::text, $2::text::jsonb, $3::text::uuid, $4::text::uuid, $5::text);

-- name: audience
-- One that is made by this has nothing read yet, and is not seen beside it.
select p.audience_id::text, p.status = 'ready', p.members, coalesce(a.rows_read, 0), coalesce(a.left_out, 0)
from deed.put_audience($1::text, $2::text, $3::text::uuid, $4::text::uuid, $5::text) p
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

-- name: audiences
select a.id::text, a.tenant_id::text, a.workspace_id::text, a.name, a.channel, a.status, a.members, a.rows_read, a.left_out, a.created_at, a.ready_at
from deed.audiences a
where ($1::text is null or a.id < $1::text::uuid) and ($2::text is null or a.tenant_id = $2::text::uuid) and ($3::text is null or a.status = $3::text)
  and ($4::text is null or a.id = $4::text::uuid)
order by a.id desc -- as they were made: UUIDv7
limit $5::int;

-- name: remove_audience
select removed, gone
from deed.remove_audience($1::text::uuid, $2::int, $3::text, $4::text::uuid, $5::text);

-- name: segment
-- Who has an address of the type, the one that is known to be theirs, or the oldest, of whichever of their names: a merge leaves
-- each name what it is known by. $5 is the purpose
-- to which they are to have agreed, for the channel $4.
select c.id::text, i.value, coalesce(c.zone, ''), c.data::text
from deed.contacts c
cross join lateral (
  select o.value
  from deed.contact_identities o
  where o.contact_id = any (case when exists (select from deed.contacts x where x.merged_into = c.id) then array(select n from deed.names_of(c.id) n) else array[c.id] end)
    and o.type = $3::text
  order by o.verified_at is null, o.created_at, o.value
  limit 1
) i
where c.tenant_id = coalesce($1::text::uuid, deed.current_tenant()) and c.erased_at is null and c.merged_into is null and c.data @@ $2::text::jsonpath
  and ($5::text is null or exists (
    select from deed.consents_of(array[c.id]) s where s.channel = $4::text and s.purpose = $5::text and s.state = 'granted'
  ))
order by c.id;

-- name: add
select deed.add_audience_members($1::text::uuid, $2::bigint, $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[]::uuid[], $7::text::uuid, $10::text, $8::bigint, $9::bigint);

-- name: finish
select deed.finish_audience($1::text::uuid, $2::bigint, $3::text::uuid, $4::text);

-- name: deploy
select run_id::text, created
from deed.deploy_campaign($1::text::uuid, $2::text::uuid, $3::text, $4::text, $5::timestamptz, $6::text::jsonb, $7::text::uuid, $8::text);

-- name: note
select deed.note_campaigns($1::text, make_interval(secs => $2::float8));

-- name: served
select deed.campaigns_served();

-- name: claim
select id::text, run_id::text, tenant_id::text, claim
from deed.claim_queued_jobs($1::text, $2::int, make_interval(secs => $3::float8));

-- name: expand
select coalesce(state, ''), coalesce(made, 0)
from deed.expand_job($1::text::uuid, $2::bigint, $3::text);

-- name: give_up
select coalesce(deed.give_up_job($1::text::uuid, $2::bigint, $3::text, $4::text), '');

-- name: put_back
select coalesce(deed.put_back_job($1::text::uuid, $2::bigint, $3::text, $4::text), '');

-- name: roll_up
select looked, ended, wait, mark, rest
from deed.roll_up($1::int, $2::text, coalesce($3::timestamptz, '-infinity'));

-- name: pause_failing
select run_id::text, tenant_id::text, why
from deed.pause_failing($1::text);

-- name: decide
select deed.decide_winners($1::int, $2::text);

-- name: sweep
select deed.sweep_runs($1::int, $2::text);

-- name: to_seal
select deed.run_to_seal(make_interval(secs => $1::float8), $2::text[]::uuid[])::text;

-- name: seal
select deed.seal_run($1::text::uuid, $2::text::jsonb, $3::text);

-- name: purge
select deed.purge_run($1::int, $2::text);

-- name: sealed
select r.sealed::text from deed.campaign_runs r where r.id = $1::text::uuid and r.sealed_at is not null;

-- name: unfinished
-- Jobs that are due, or will be within that time, and those whose deliveries are under way
-- and not held, and do not all wait for longer than that by their recipients' clocks.
select exists (
  select from deed.job_queue j where j.status = 'queued' and j.process_after <= clock_timestamp() + make_interval(secs => $1::float8)
) or exists (
  select from deed.job_queue j join deed.campaign_runs r on r.id = j.run_id where j.status = 'locked' and r.paused_at is null and (r.zones is null or coalesce((
    select bool_or(c.status = 'sending' or c.ord <= clock_timestamp() + make_interval(secs => $1::float8))
    from deed.channel_outbox c
    where c.run_id = j.run_id and c.job_id = j.id and c.finished_at is null
  ), true))
) or exists ( -- a test that can be decided by then: nobody in it waits for their call (deed.decide_winners), who are under way, or are held or asleep
  select
  from deed.campaign_runs r
  where r.decide_at <= clock_timestamp() + make_interval(secs => $1::float8)
    and not exists (
      select
      from deed.job_queue j
      where j.run_id = r.id and j.part = 'test' and j.finished_at is null and (j.expanded_at is null or exists (
        select
        from deed.channel_outbox c
        where c.run_id = j.run_id and c.job_id = j.id and c.status = 'queued' and c.first_called_at is null
        offset 0 -- each is asked for once
      ))
      offset 0
    )
);

-- name: content
-- Of a run with variants that of the variant $2.
select r.channel, r.purpose, coalesce(r.options ->> 'from', ''), coalesce(r.options ->> 'reply_to', ''),
  coalesce(c.subject, ''), coalesce(c.text, ''), coalesce(c.html, ''), coalesce(c.script, '')
from deed.campaign_runs r
join deed.campaign_contents c on c.id = case when r.options ? 'variants' then (r.options -> 'variants' ->> $2::text)::uuid else r.content_id end
where r.id = $1::text::uuid;

-- name: pause
select deed.pause_run($1::text::uuid, $2::text, $3::text::uuid, $4::text);

-- name: sending
-- By what its provider is sending, and not by all that the run has.
select count(c.id) filter (where c.held_at is null), count(c.id) filter (where c.held_at is null and c.doubt_since is not null), count(c.id) filter (where c.held_at is not null),
  coalesce((array_agg(c.id::text order by c.id) filter (where c.held_at is not null))[1:100], '{}'), bool_or(r.paused_at is not null or r.cancelled_at is not null or r.finished_at is not null)
from deed.campaign_runs r
left join lateral (
  select o.id, o.run_id, o.held_at, o.doubt_since
  from deed.channel_outbox o
  where o.provider = r.provider and o.status = 'sending'
  offset 0
) c on c.run_id = r.id
where r.id = $1::text::uuid
group by r.id;

-- name: resume
select deed.resume_run($1::text::uuid, $2::text, $3::text::uuid, $4::text);

-- name: cancel
select deed.cancel_run($1::text::uuid, $2::text, $3::text::uuid, $4::text);

-- name: winner
select deed.choose_winner($1::text::uuid, $2::text, $3::text, $4::text::uuid, $5::text);

-- name: retry
select run_id::text, created, members
from deed.retry_run($1::text::uuid, $2::text, $3::bool, $4::text, $5::text::uuid, $6::text);

-- name: runs
select r.id::text, r.tenant_id::text, r.workspace_id::text, r.campaign_id::text, c.name, r.status, r.channel, r.provider, r.purpose, r.request_id, r.audience_id::text,
  r.content_id::text, r.members, r.created_at, r.scheduled_for, r.expires_at, r.started_at, r.paused_at, r.cancelled_at, r.finished_at, coalesce(r.retry_of::text, ''),
  r.last_due, coalesce(r.options ->> 'at', ''), coalesce(r.options ->> 'if_passed', ''), coalesce(r.options ->> 'quiet_hours', ''), coalesce(r.options ->> 'zone', ''),
  coalesce(r.options ->> 'rate', ''), coalesce(r.options ->> 'ramp', ''), coalesce(r.paused_why, ''), r.options -> 'pause_on',
  (deed.cells_of(r.options, r.request_id)).names, coalesce(r.options #>> '{test,by}', ''),
  coalesce((r.options #>> '{test,share}')::float8, 0), coalesce(extract(epoch from (r.options #>> '{test,wait}')::interval)::float8, 0), coalesce(r.winner, ''), r.winner_at, coalesce(r.options ->> 'from', ''), r.sealed_at, r.purged_at
from deed.campaign_runs r
join deed.campaigns c on c.id = r.campaign_id
where ($1::text is null or r.id < $1::text::uuid) and ($2::text is null or r.tenant_id = $2::text::uuid) and ($3::text is null or r.status = $3::text)
  and ($4::text is null or c.name = $4::text)
order by r.id desc -- as they were deployed: UUIDv7
limit $5::int;

-- name: run
select r.id::text, r.tenant_id::text, r.workspace_id::text, r.campaign_id::text, c.name, r.status, r.channel, r.provider, r.purpose, r.request_id, r.audience_id::text,
  r.content_id::text, r.members, r.created_at, r.scheduled_for, r.expires_at, r.started_at, r.paused_at, r.cancelled_at, r.finished_at, coalesce(r.retry_of::text, ''),
  r.last_due, coalesce(r.options ->> 'at', ''), coalesce(r.options ->> 'if_passed', ''), coalesce(r.options ->> 'quiet_hours', ''), coalesce(r.options ->> 'zone', ''),
  coalesce(r.options ->> 'rate', ''), coalesce(r.options ->> 'ramp', ''), coalesce(r.paused_why, ''), r.options -> 'pause_on',
  (deed.cells_of(r.options, r.request_id)).names, coalesce(r.options #>> '{test,by}', ''),
  coalesce((r.options #>> '{test,share}')::float8, 0), coalesce(extract(epoch from (r.options #>> '{test,wait}')::interval)::float8, 0), coalesce(r.winner, ''), r.winner_at, coalesce(r.options ->> 'from', ''), r.sealed_at, r.purged_at
from deed.campaign_runs r
join deed.campaigns c on c.id = r.campaign_id
where r.id = $1::text::uuid;

-- name: progress
-- What has become of a job stands on it (deed.roll_up), as of its last count while it is open; the five
-- whose count is the oldest are counted here. Last come why members did not get it, the ten
-- reasons that are most frequent; of jobs that ended before these were kept, by their rows.
with jobs as materialized (
  select q.id, q.run_id, coalesce(q.members, q.upto_n - q.from_n + 1) as members, q.expanded_at, q.finished_at, q.counted_at, q.queued, q.sending, q.in_doubt, q.held, q.sent, q.skipped, q.missed, q.failed, q.dead,
    q.reasons
  from deed.job_queue q
  where q.run_id = $1::text::uuid
),
counted as materialized (
  select j.id, c.*
  from (select o.id, o.run_id from jobs o where o.expanded_at is not null and o.finished_at is null order by o.counted_at nulls first limit 5) j
  cross join lateral deed.count_job(j.run_id, j.id) c
),
known as materialized (
  select coalesce(c.queued, j.queued, case when j.finished_at is null then j.members end, 0) as queued, coalesce(c.sending, j.sending, 0) as sending,
    coalesce(c.in_doubt, j.in_doubt, 0) as in_doubt, coalesce(c.held, j.held, 0) as held, coalesce(c.sent, j.sent, 0) as sent, coalesce(c.skipped, j.skipped, 0) as skipped,
    coalesce(c.missed, j.missed, 0) as missed, coalesce(c.failed, j.failed, 0) as failed, coalesce(c.dead, j.dead, 0) as dead,
    coalesce(c.reasons, j.reasons, case when j.skipped + j.missed + j.failed + j.dead > 0 then (select o.reasons from deed.count_job(j.run_id, j.id) o) end, '[]') as reasons
  from jobs j
  left join counted c on c.id = j.id
  where j.expanded_at is not null
),
named as (
  select r.why ->> 0 as status, r.why ->> 1 as reason, sum((r.why ->> 2)::bigint)::bigint as n
  from known k
  cross join lateral jsonb_array_elements(k.reasons) r(why)
  group by 1, 2
  order by 3 desc, 1, 2
  limit 10
)
select j.waiting, j.lost, k.queued, k.sending, k.in_doubt, k.held, k.sent, k.skipped, k.missed, k.failed, k.dead,
  coalesce((select jsonb_agg(jsonb_build_object('status', n.status, 'reason', n.reason, 'count', n.n)) from named n), '[]')::text
from (
  select coalesce(sum(o.members) filter (where o.finished_at is null), 0)::bigint as waiting, coalesce(sum(o.members) filter (where o.finished_at is not null), 0)::bigint as lost
  from jobs o
  where o.expanded_at is null
) j
cross join (
  select coalesce(sum(o.queued), 0)::bigint as queued, coalesce(sum(o.sending), 0)::bigint as sending, coalesce(sum(o.in_doubt), 0)::bigint as in_doubt, coalesce(sum(o.held), 0)::bigint as held,
    coalesce(sum(o.sent), 0)::bigint as sent, coalesce(sum(o.skipped), 0)::bigint as skipped, coalesce(sum(o.missed), 0)::bigint as missed, coalesce(sum(o.failed), 0)::bigint as failed,
    coalesce(sum(o.dead), 0)::bigint as dead
  from known o
) k;

-- name: waits
select w.why, w.until, coalesce(w.local_time, ''), coalesce(w.zone, ''), coalesce(w.zones, 0), coalesce(w.deliveries, 0), coalesce(w.rate, 0)
from deed.run_waits($1::text::uuid) w;

-- name: trace
select r.status, j.from_n, j.id::text, j.status, j.attempts, coalesce(j.last_error, ''), coalesce(c.id::text, ''), coalesce(c.status, case when r.sealed_at is not null and j.expanded_at is not null then 'purged' end, ''), coalesce(c.contact_id::text, ''),
  case when c.sent_at is null then coalesce(c.skip_reason, c.doubt_reason, c.last_error, '') else '' end, coalesce(c.provider_message_id, ''), coalesce(c.payload ->> 'variant', ''), coalesce(c.id::text, j.id::text)
from deed.campaign_runs r
join deed.job_queue j on j.run_id = r.id
left join deed.channel_outbox c on c.run_id = j.run_id and c.job_id = j.id
where r.id = $1::text::uuid and (j.from_n > $2::bigint or (j.from_n = $2::bigint and coalesce(c.id, j.id) > $3::text::uuid))
order by j.from_n, coalesce(c.id, j.id)
limit $4::int;

-- name: heard
-- What has been said of those that went out; a bounce of before its kind was kept is a hard one.
select count(*) filter (where c.proved_at is not null), count(f.delivered_at), count(f.bounced_at) filter (where f.bounce is distinct from 'soft'),
  count(f.bounced_at) filter (where f.bounce = 'soft'), count(f.complained_at), count(f.unsubscribed_at), count(f.opened_at), count(f.clicked_at)
from deed.channel_outbox c
left join deed.delivery_feedback f on f.delivery_id = c.id and c.status in ('sent', 'called', 'posted')
where c.run_id = $1::text::uuid;

-- name: variants
-- Of each variant, those who got it in the test's cells, and all: what went out, and what was said of it. Members of the
-- rest are those of the winner, unless that was chosen after the run had ended, for its retry. Counted is what is expanded.
select v.name, v.part, count(*), count(*) filter (where v.done), count(v.delivered_at), count(v.bounced_at), count(v.complained_at), count(v.unsubscribed_at), count(v.opened_at), count(v.clicked_at)
from (
  select coalesce(c.cell, case when r.winner_at <= coalesce(r.finished_at, 'infinity') then r.winner end) as name, case when r.options ? 'test' and c.cell is not null then 'test' when r.options ? 'test' then 'rest' else '' end as part, c.done,
    f.delivered_at, f.bounced_at, f.complained_at, f.unsubscribed_at, f.opened_at, f.clicked_at
  from deed.campaign_runs r
  cross join lateral deed.cells_of(r.options, r.request_id) s
  cross join lateral (
    select o.id, o.status in ('sent', 'called', 'posted') as done, deed.variant_of(s.names, s.share, s.salt, o.contact_id) as cell
    from deed.channel_outbox o
    where o.run_id = r.id
    offset 0
  ) c
  left join deed.delivery_feedback f on f.delivery_id = c.id and c.done
  where r.id = $1::text::uuid and s.names is not null
) v
where v.name is not null
group by v.name, v.part
order by v.name collate "C", v.part desc;

-- name: skips
-- Of a suppression its reason, too, but for what that says of a single delivery.
select c.status, concat_ws(':', split_part(c.skip_reason, ':', 1), nullif(split_part(c.skip_reason, ':', 2), '')), count(*)
from deed.channel_outbox c
where c.run_id = $1::text::uuid and c.status = 'skipped'
group by 1, 2
order by 3 desc, 1, 2
limit 100;

-- name: failures
-- By what the provider said last; nothing is said of what no request could be made of.
select c.status, coalesce(a.outcome, ''), coalesce(a.code, ''), count(*)
from deed.channel_outbox c
left join lateral (
  select d.outcome, d.code
  from deed.delivery_attempts d
  where d.delivery_id = c.id and d.outcome <> 'proved'
  order by d.at desc, d.number desc
  limit 1
) a on true
where c.run_id = $1::text::uuid and c.status in ('failed', 'dead')
group by 1, 2, 3
order by 4 desc, 1, 2, 3
limit 100;

-- name: members
-- Each member once, behind $2. A winner that was chosen after the run had ended, for its retry, is nobody's of it.
select m.n, m.contact_id::text, coalesce(m.address, ''), coalesce(c.id::text, ''),
  case when c.id is not null then c.status when m.sealed and j.expanded_at is not null then 'purged' when j.id is null or j.expanded_at is not null then 'missing' when j.finished_at is not null then 'lost' else 'waiting' end,
  coalesce(case when c.id is null and j.expanded_at is null then j.last_error when c.sent_at is null then coalesce(c.skip_reason, c.doubt_reason, c.last_error) end, ''),
  coalesce(c.provider_message_id, ''), c.sent_at, f.delivered_at, f.bounced_at, coalesce(f.bounce, ''), f.complained_at, f.unsubscribed_at, f.opened_at, f.clicked_at,
  coalesce(m.cell, m.winner, '')
from (
  -- these alone are joined, whatever the statistics say
  select o.n, o.contact_id, o.address, deed.variant_of(r.names, r.share, r.salt, o.contact_id) as cell, r.winner, r.sealed
  from (
    select m.n, m.contact_id, m.address
    from deed.audience_members m
    where m.audience_id = (select r.audience_id from deed.campaign_runs r where r.id = $1::text::uuid) and m.n > $2::bigint
    order by m.n
    limit $3::int
  ) o
  cross join (
    select s.names, s.share, s.salt, case when r.winner_at <= coalesce(r.finished_at, 'infinity') then r.winner end as winner, r.sealed_at is not null as sealed from deed.campaign_runs r cross join lateral deed.cells_of(r.options, r.request_id) s where r.id = $1::text::uuid
  ) r
  offset 0 -- each is asked for once
) m
left join deed.job_queue j on j.run_id = $1::text::uuid and m.n between j.from_n and j.upto_n and (j.part is null or (m.cell is null) = (j.part = 'rest'))
left join lateral (
  select o.*
  from deed.channel_outbox o
  where o.contact_id = m.contact_id and o.run_id is not distinct from $1::text::uuid -- by the contact, who has few, and not by the run
  order by o.id
  limit 1
) c on true
left join deed.delivery_feedback f on f.delivery_id = c.id
order by m.n;

-- name: verify
-- What keeps a run from being proved, by kind and member: the first $2 of each kind, and how many there are of it.
-- Those whose job waits are missing only once the run has ended.
with run as (
  select r.id, r.audience_id, r.content_id, r.channel, r.members, r.finished_at, r.retry_of, r.created_at, r.options, r.winner, s.names, s.share, s.salt, to_char(r.scheduled_for at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as begins
  from deed.campaign_runs r
  cross join lateral deed.cells_of(r.options, r.request_id) s
  where r.id = $1::text::uuid
),
jobs as materialized (
  select j.id, j.from_n, j.upto_n, j.part, coalesce(j.members, j.upto_n - j.from_n + 1) as members, j.expanded_at, j.finished_at, j.last_error, j.sent, j.skipped, j.missed, j.failed, j.dead
  from deed.job_queue j
  where j.run_id = $1::text::uuid
),
members as materialized (
  select m.n, m.contact_id, m.address, m.variant, j.id as job_id, j.expanded_at, j.finished_at as ended_at, j.last_error
  from (
    select o.n, o.contact_id, o.address, case when r.names is not null then deed.variant_of(r.names, r.share, r.salt, o.contact_id) end as variant
    from run r
    join deed.audience_members o on o.audience_id = r.audience_id
    offset 0 -- each is asked for once
  ) m
  left join jobs j on j.from_n = (m.n - 1) / 1000 * 1000 + 1 and m.n <= j.upto_n and (j.part is null or (m.variant is null) = (j.part = 'rest'))
),
items as materialized (
  select c.id, c.job_id, c.contact_id, c.status, c.finished_at, c.sent_at, c.attempts, c.idempotency_key, c.claim, c.provider_message_id, c.request is null and c.request_sha256 is null as no_hash, c.payload ->> 'variant' as says, c.payload ? 'contact' as is_there,
    c.status in ('sent', 'called', 'posted') as done, c.status = 'skipped' and split_part(c.skip_reason, ';', 1) in ('cancelled', 'expired') as missed, c.status = 'skipped' and c.erased_at is not null as erased
  from deed.channel_outbox c
  where c.run_id = $1::text::uuid
),
counts as (
  select i.job_id, count(*) filter (where i.done) as sent, count(*) filter (where i.status = 'skipped') as skipped, count(*) filter (where i.missed) as missed,
    count(*) filter (where i.erased) as erased, count(*) filter (where i.status = 'failed') as failed, count(*) filter (where i.status = 'dead') as dead
  from items i
  group by i.job_id
),
placed as materialized (
  select i.*, m.n, m.address, m.variant, m.job_id as job_of_member
  from items i
  left join members m on m.contact_id = i.contact_id
),
found as (
  select 'missing' as kind, m.n, m.contact_id::text as contact, '' as delivery,
    coalesce('nobody has reserved it: ' || case when m.expanded_at is null then m.last_error end, case when m.job_id is null then 'there is no job for it' else 'there is no delivery for it' end) as detail
  from members m
  cross join run r
  left join items i on i.contact_id = m.contact_id
  where i.id is null and (r.finished_at is not null or m.ended_at is not null or m.expanded_at is not null or m.job_id is null)
  union all
  select 'twice', b.n, b.contact_id::text, b.id::text, format('%s deliveries of the run are for this member', d.times)
  from placed b
  join (select i.contact_id, count(*) as times from items i group by i.contact_id having count(*) > 1) d on d.contact_id = b.contact_id
  union all
  select 'stranger', b.n, coalesce(b.contact_id::text, ''), b.id::text,
    case when b.n is null then 'it is for nobody in the audience' else 'it is of another job than its member' end
  from placed b
  where b.n is null or b.job_id is distinct from b.job_of_member
  union all
  select 'open', b.n, b.contact_id::text, b.id::text, format('the run has ended, and it is %s', b.status)
  from placed b
  cross join run r
  where b.finished_at is null and r.finished_at is not null
  union all
  select 'accepted twice', b.n, b.contact_id::text, b.id::text, format('the provider has accepted it as %s, too%s', coalesce(a.provider_message_id, 'a message without an id'),
    coalesce('; ' || (
      select string_agg(l.actor || ' had decided about it: ' || coalesce(l.reason, ''), ', ' order by l.n)
      from deed.audit_log l where l.subject_type = 'delivery' and l.subject_id = b.id::text and l.action = 'settle' and l.details ? 'decision'
    ), ''))
  from placed b
  join deed.delivery_attempts a on a.delivery_id = b.id
  where b.done and a.outcome = 'accepted' and not a.sandbox and a.claim is distinct from b.claim
    and (case
      -- What proved it named no message, and may be of this very call: two were accepted if they have two names.
      when b.provider_message_id is null and exists (select from deed.delivery_attempts o where o.delivery_id = b.id and o.outcome = 'proved' and o.at = b.sent_at) then exists (
        select from deed.delivery_attempts o
        where o.delivery_id = b.id and o.outcome = 'accepted' and not o.sandbox and o.claim <> a.claim and o.provider_message_id is distinct from a.provider_message_id
      )
      else a.provider_message_id is distinct from b.provider_message_id
    end or (
      -- A repeat under a key is the same message. Without one two may have one name, as a mail server gives them: another
      -- call was accepted, too, if that was late as well, or if it was the last one, which ended it and was none that failed.
      a.provider_key is null and (
        exists (select from deed.delivery_attempts o where o.delivery_id = b.id and o.outcome = 'accepted' and not o.sandbox and o.claim <> a.claim)
        or (b.attempts > a.number and not exists (
          select from deed.delivery_attempts o
          where o.delivery_id = b.id and case o.outcome
            when 'proved' then o.at = b.sent_at
            when 'accepted' then false
            when 'deferred' then false -- it was not counted, and the next one had its number
            when 'outage' then false
            else o.number = b.attempts end
        ))
      )
    ))
  union all
  select 'other key', b.n, b.contact_id::text, b.id::text, 'its key is not made of the run, the member and what is said'
  from placed b
  cross join run r
  join deed.campaign_contents t on t.id = r.content_id
  where b.n is not null and (r.channel <> 'social' or b.address is not null) and b.idempotency_key <> case r.channel
    when 'email' then deed.idempotency_key(r.id::text, b.contact_id::text, t.asset_id, r.begins)
    when 'voice' then deed.idempotency_key(r.id::text, b.contact_id::text, t.script_version, r.begins)
    when 'social' then deed.idempotency_key(r.id::text, t.post_id, b.address, r.begins)
    else deed.idempotency_key(r.id::text, b.contact_id::text, t.asset_id, r.begins, r.channel) end
  union all
  -- What was erased says none any more.
  select 'other variant', b.n, b.contact_id::text, b.id::text, format('it says %s, and the member''s is %s', coalesce('variant ' || b.says, 'no variant'), coalesce(b.variant, r.winner, 'not decided'))
  from placed b
  cross join run r
  where b.n is not null and b.is_there and b.status <> 'skipped' and b.says is distinct from case when r.names is not null then coalesce(b.variant, r.winner) end
  union all
  select 'no hash', b.n, b.contact_id::text, b.id::text, 'it went out, and neither its request nor the SHA-256 of it is there'
  from placed b
  where b.done and b.no_hash
  union all
  select 'other content', null, '', '', format('content %s is not what its SHA-256 says', t.id)
  from run r
  join deed.campaign_contents t on t.id = r.content_id or t.id in (select v.id::uuid from jsonb_each_text(r.options -> 'variants') v(name, id))
  where t.sha256 <> sha256(convert_to(jsonb_strip_nulls(jsonb_build_object('asset', t.asset_id, 'variant', t.variant, 'subject', t.subject, 'text', t.text, 'html', t.html,
    'script', t.script, 'script_version', t.script_version, 'post', t.post_id))::text, 'UTF8'))
  union all
  select 'other audience', null, '', '', format('the run is for %s members, its audience has %s, and its jobs %s', r.members, (select count(*) from members), (select sum(j.members) from jobs j))
  from run r
  where r.members <> (select count(*) from members) or r.members is distinct from (select sum(j.members) from jobs j)
  union all
  -- A retry is of those who failed (C7); who is known since to have got it is skipped.
  select 'other retry', m.n, m.contact_id::text, coalesce(i.id::text, ''), format('in run %s, which this one retries, %s', r.retry_of,
    case when o.id is null then 'there was nobody of this member' else 'it was ' || o.status || ': ' || coalesce(o.skip_reason, 'it had gone out') end)
  from run r
  join deed.campaign_runs b on b.id = r.retry_of
  join members m on true
  left join items i on i.contact_id = m.contact_id
  left join deed.audience_members a on a.audience_id = b.audience_id and a.contact_id = m.contact_id
  left join deed.channel_outbox o on o.run_id = b.id and o.contact_id = m.contact_id
  where a.n is null
    or (o.status in ('sent', 'called', 'posted') and i.status <> 'skipped')
    or (o.status = 'skipped' and coalesce(split_part(o.skip_reason, ';', 1), '') not in ('cancelled', 'expired', 'erased'))
  union all
  select 'other retry', null, a.contact_id::text, o.id::text, format('in run %s, which this one retries, it is %s, and it is not tried again', r.retry_of, o.status)
  from run r
  join deed.campaign_runs b on b.id = r.retry_of
  join deed.channel_outbox o on o.run_id = b.id and o.status in ('failed', 'dead') and o.finished_at < r.created_at
    and o.proved_at is null and o.unsettled_since is null and o.erased_at is null
  join deed.audience_members a on a.audience_id = b.audience_id and a.contact_id = o.contact_id and a.address is not null
  where not exists (select from members m where m.contact_id = o.contact_id)
    and not exists (select from deed.delivery_attempts d where d.delivery_id = o.id and d.outcome = 'bad address')
  union all
  -- Once a job has ended none of these changes, but that what was missed is as what was skipped once it is erased.
  select 'other counts', j.from_n, '', '', format('job %s says that %s were sent, %s skipped, %s missed, %s failed and %s dead, and of its deliveries %s were, %s, %s, %s and %s', j.id,
    j.sent, j.skipped, j.missed, j.failed, j.dead, c.sent, c.skipped - c.missed, c.missed, c.failed, c.dead)
  from jobs j
  left join counts o on o.job_id = j.id
  cross join lateral (
    select coalesce(o.sent, 0) as sent, coalesce(o.skipped, 0) as skipped, coalesce(o.missed, 0) as missed, coalesce(o.erased, 0) as erased, coalesce(o.failed, 0) as failed, coalesce(o.dead, 0) as dead
  ) c
  where j.finished_at is not null and j.expanded_at is not null
    and ((j.sent, j.skipped + j.missed, j.failed, j.dead) is distinct from (c.sent, c.skipped, c.failed, c.dead) or j.missed not between c.missed and c.missed + c.erased)
)
select f.kind, coalesce(f.n, 0), f.contact, f.delivery, f.detail, f.total
from (select o.*, count(*) over (partition by o.kind) as total, row_number() over (partition by o.kind order by o.n, o.delivery) as place from found o) f
where f.place <= $2::int
order by f.kind, f.place;

-- name: proved
select s.installation::text, t.sha256, coalesce((select a.k || ':' || encode(a.sha256, 'hex') from deed.audit_seals a order by a.k desc limit 1), ''), clock_timestamp(),
  (select jsonb_object_agg(v.name, encode(c.sha256, 'base64')) from jsonb_each_text(r.options -> 'variants') v(name, id) join deed.campaign_contents c on c.id = v.id::uuid)
from deed.campaign_runs r
join deed.campaign_contents t on t.id = r.content_id
cross join deed.settings s
where r.id = $1::text::uuid;

-- name: proved_members
-- Each member once, behind $2, with nothing that an erasure takes away.
select m.n, m.contact_id::text, coalesce(c.id::text, ''), coalesce(c.status, 'lost'), coalesce(deed.erased_message_id(c.provider_message_id), ''), coalesce(c.request_sha256, sha256(c.request)), c.finished_at,
  coalesce(deed.variant_of(r.names, r.share, r.salt, m.contact_id), r.winner, '')
from (
  select m.n, m.contact_id
  from deed.audience_members m
  where m.audience_id = (select r.audience_id from deed.campaign_runs r where r.id = $1::text::uuid) and m.n > $2::bigint
  order by m.n
  limit $3::int
) m
cross join (
  select s.names, s.share, s.salt, case when r.winner_at <= coalesce(r.finished_at, 'infinity') then r.winner end as winner from deed.campaign_runs r cross join lateral deed.cells_of(r.options, r.request_id) s where r.id = $1::text::uuid
) r
left join lateral (
  select o.id, o.status, o.provider_message_id, o.request_sha256, o.request, o.finished_at
  from deed.channel_outbox o
  where o.contact_id = m.contact_id and o.run_id is not distinct from $1::text::uuid -- as in members
  order by o.id
  limit 1
) c on true
order by m.n;
