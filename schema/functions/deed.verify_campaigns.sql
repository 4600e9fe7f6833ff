-- deed.verify_campaigns: the part of deed.verify that is about campaigns, but for those of
-- tenants that were removed: an audience has as many members as it says, the jobs of a run
-- are all of its audience, each that is expanded has a delivery for every member and none for
-- anybody else, but where they are purged (deed.purge_run), nobody has two of a run, or another variant than is theirs, and no job has ended before all of its deliveries have; and runs are where their jobs say.
-- What one run lacks, and whom, campaign.Verify says.
create or replace function deed.verify_campaigns() returns table (
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
  runs as materialized (
    select r.id, r.tenant_id, r.status, r.members, r.audience_id, r.options, r.request_id, r.winner, r.sealed_at from deed.campaign_runs r where r.tenant_id <> all ((select ids from removed)::uuid[])
  ),
  jobs as materialized (
    select j.id, j.run_id, j.tenant_id, j.status, j.expanded_at, j.finished_at, j.from_n, j.upto_n, coalesce(j.members, j.upto_n - j.from_n + 1) as members, j.sent, j.skipped, j.missed, j.failed, j.dead
    from deed.job_queue j
    where j.tenant_id <> all ((select ids from removed)::uuid[])
  ),
  items as materialized (
    select c.run_id, c.job_id, count(*) as n, count(*) filter (where c.finished_at is null) as open, min(c.tenant_id::text)::uuid as tenant_id
    from deed.channel_outbox c
    where c.run_id is not null and c.tenant_id <> all ((select ids from removed)::uuid[])
    group by c.run_id, c.job_id
  )
  select 'members of an audience are missing', a.tenant_id, format('audience %s has %s members, and is to have %s', a.id, coalesce(m.n, 0), a.members)
  from deed.audiences a
  left join (select o.audience_id, count(*) as n from deed.audience_members o group by o.audience_id) m on m.audience_id = a.id
  where coalesce(m.n, 0) <> a.members and a.status <> 'removing' and a.tenant_id <> all ((select ids from removed)::uuid[])
  union all
  select 'jobs of a campaign''s run are missing', r.tenant_id, format('run %s has %s members, and its jobs have %s', r.id, r.members, coalesce(j.n, 0))
  from runs r
  left join (select o.run_id, sum(o.members) as n from jobs o group by o.run_id) j on j.run_id = r.id
  where coalesce(j.n, 0) <> r.members
  union all
  select 'job of a campaign has other deliveries than members', j.tenant_id, format('job %s of run %s has %s deliveries for %s members', j.id, j.run_id, coalesce(i.n, 0), j.members)
  from jobs j
  left join items i on i.run_id = j.run_id and i.job_id = j.id
  join runs r on r.id = j.run_id
  where coalesce(i.n, 0) <> case when j.expanded_at is null then 0 else j.members end and r.sealed_at is null
  union all
  select 'deliveries of no job of a campaign', i.tenant_id, format('job %s of run %s is not there, and has %s deliveries', i.job_id, i.run_id, i.n)
  from items i
  left join jobs j on j.id = i.job_id and j.run_id = i.run_id
  where j.id is null and i.job_id is not null
  union all
  select 'delivery of a campaign is for nobody whom its job is for', c.tenant_id, format('delivery %s of run %s is for contact %s', c.id, c.run_id, c.contact_id)
  from deed.channel_outbox c
  join runs r on r.id = c.run_id
  left join deed.audience_members m on m.audience_id = r.audience_id and m.contact_id = c.contact_id
  left join jobs j on j.id = c.job_id and j.run_id = c.run_id
  where m.n is null or m.n < j.from_n or m.n > j.upto_n
  union all
  select 'member of a campaign has two deliveries of a run', min(c.tenant_id::text)::uuid, format('run %s has %s for contact %s', c.run_id, count(*), c.contact_id)
  from deed.channel_outbox c
  where c.run_id in (select r.id from runs r)
  group by c.run_id, c.contact_id
  having count(*) > 1
  union all
  select 'delivery of a campaign says another variant than its member is to get', c.tenant_id, format('delivery %s of run %s says variant %s', c.id, c.run_id, coalesce(c.payload ->> 'variant', 'none'))
  from runs r
  cross join lateral deed.cells_of(r.options, r.request_id) s
  join deed.channel_outbox c on c.run_id = r.id
  where r.options ? 'variants' and c.status <> 'skipped' and c.payload ? 'contact'
    and c.payload ->> 'variant' is distinct from coalesce(deed.variant_of(s.names, s.share, s.salt, c.contact_id), r.winner)
  union all
  select 'job of a campaign has ended, and its deliveries have not', j.tenant_id, format('job %s of run %s is %s; open: %s', j.id, j.run_id, j.status, i.open)
  from jobs j
  join items i on i.run_id = j.run_id and i.job_id = j.id
  where j.finished_at is not null and i.open > 0
  union all
  select 'job of a campaign does not add up', j.tenant_id, format('job %s of run %s is %s', j.id, j.run_id, j.status)
  from jobs j
  where j.finished_at is not null and j.expanded_at is not null and j.sent + j.skipped + j.missed + j.failed + j.dead is distinct from j.members
  union all
  select 'run of a campaign is not where its jobs say', r.tenant_id, format('run %s is %s; open jobs: %s', r.id, r.status, coalesce(j.open, 0))
  from runs r
  left join (select o.run_id, count(*) filter (where o.finished_at is null) as open from jobs o group by o.run_id) j on j.run_id = r.id
  where (coalesce(j.open, 0) > 0) <> (r.status in ('queued', 'running'))
$$;
