-- The statements about campaigns; read-only, as those of queries.sql.

-- name: paused_runs
-- Runs of campaigns that have paused themselves.
select r.id::text, c.name, r.paused_why, extract(epoch from pg_catalog.clock_timestamp() - r.paused_at)::float8
from deed.campaign_runs r
join deed.campaigns c on c.id = r.campaign_id
where r.finished_at is null and r.paused_why is not null
order by r.paused_at, r.id
limit 20;

-- name: loading_audiences
select a.name, a.channel, a.members, extract(epoch from pg_catalog.clock_timestamp() - a.created_at)::float8
from deed.audiences a
where a.status <> 'ready' and a.created_at < pg_catalog.clock_timestamp() - interval '1 day'
order by a.created_at, a.id
limit 20;

-- name: waiting_jobs
-- Runs of campaigns with jobs that are due since long; those of a test's rest are once its winner is written.
select r.id::text, c.name, count(*), extract(epoch from pg_catalog.clock_timestamp() - min(j.process_after))::float8
from deed.job_queue j
join deed.campaign_runs r on r.id = j.run_id
join deed.campaigns c on c.id = r.campaign_id
where j.status = 'queued' and j.process_after < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
  and (j.part is distinct from 'rest' or r.winner is not null or r.cancelled_at is not null)
group by r.id, c.name
order by min(j.process_after), r.id
limit 20;
