-- deed.are_merged_twice: whether a delivery of this job, and another one of the run's to who is the same
-- contact by a merge, are both not skipped. What other jobs have reserved, as a test's for others of the
-- same range, stays as it is, whoever is merged since. For deed.expand_job; where nobody is merged nothing is read.
create or replace function deed.are_merged_twice(p_job uuid) returns boolean
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  with merged as materialized (
    select c.id, c.tenant_id, j.run_id
    from deed.job_queue j
    join deed.campaign_runs r on r.id = j.run_id
    join deed.audience_members m on m.audience_id = r.audience_id and m.n between j.from_n and j.upto_n
    join deed.contacts c on c.id = m.contact_id
    where j.id = p_job and exists (select from deed.contacts x where x.merged_into is not null)
      and (c.merged_into is not null or exists (select from deed.contacts x where x.merged_into = c.id))
  )
  select exists (
    select
    from merged m
    cross join lateral deed.names_of(deed.contact_of(m.tenant_id, m.id)) o(id)
    join deed.channel_outbox d on d.contact_id = o.id and d.run_id = m.run_id and d.status <> 'skipped'
    join deed.channel_outbox e on e.contact_id = m.id and e.job_id = p_job and e.status <> 'skipped'
    where o.id <> m.id
  )
$$;
