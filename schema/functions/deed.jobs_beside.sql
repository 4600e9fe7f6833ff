-- deed.jobs_beside: which other jobs of a run are being expanded of whose members one is the
-- same contact, by a merge, as a member of this job. For deed.expand_job; mostly there is no
-- merge, or no such job, and nothing is read.
create or replace function deed.jobs_beside(p_job uuid) returns uuid[]
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  with beside as materialized (
    select o.id, o.from_n, o.upto_n, r.audience_id, j.from_n as ours_from, j.upto_n as ours_upto
    from deed.job_queue j
    join deed.campaign_runs r on r.id = j.run_id
    join deed.job_queue o on o.run_id = j.run_id and o.id <> j.id and o.status = 'locked' and o.expanded_at is null
    where j.id = p_job and exists (select from deed.contacts x where x.merged_into is not null)
  ),
  merged as materialized (
    select c.id, c.tenant_id
    from (select b.audience_id, b.ours_from, b.ours_upto from beside b limit 1) b
    join deed.audience_members m on m.audience_id = b.audience_id and m.n between b.ours_from and b.ours_upto
    join deed.contacts c on c.id = m.contact_id
    where c.merged_into is not null or exists (select from deed.contacts x where x.merged_into = c.id)
  )
  select coalesce(array_agg(distinct b.id), '{}')
  from merged m
  cross join lateral deed.names_of(deed.contact_of(m.tenant_id, m.id)) o(id)
  cross join beside b
  join deed.audience_members s on s.contact_id = o.id and s.audience_id = b.audience_id and s.n between b.from_n and b.upto_n
  where o.id <> m.id
$$;
