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
where a.status = 'loading' and a.created_at < pg_catalog.clock_timestamp() - interval '1 day'
order by a.created_at, a.id
limit 20;
