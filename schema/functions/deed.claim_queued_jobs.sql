-- deed.claim_queued_jobs: lock up to p_limit jobs of campaigns that are due, the first one
-- first, for their expansion (deed.expand_job). The first lock of a run makes it running.
--
-- A job that was locked and not expanded when its lease ran out is taken back first: it is
-- queued again with one attempt more, or dead after five (C5). One that is expanded holds no
-- lease. claim is the fencing token of those that are returned. A run that somebody keeps locked, as a
-- pause does whose transaction is open, is not waited for: its jobs are left out, and the next ones looked at. Where
-- twenty looks have found such runs alone, their jobs are put off by a second. Raises DDARG.
create or replace function deed.claim_queued_jobs(
  p_worker text,
  p_limit  int,
  p_lease  interval default interval '5 minutes'
) returns table (id uuid, run_id uuid, tenant_id uuid, claim bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_taken int := 0; -- of those whose lease ran out
  v_jobs  uuid[] := '{}';
  v_begin uuid[] := '{}'; -- runs that are queued, locked
  v_shut  uuid[] := '{}'; -- those that somebody else keeps locked
  v_found uuid[];
  v_late  uuid[]; -- runs of what a look found that are shut
  v_from  timestamptz := '-infinity'; -- before it each job was looked at
  v_claim bigint;
  v_job   record;
begin
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim_queued_jobs: worker must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (p_limit between 1 and 1000) is not true or (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'claim_queued_jobs: limit must be from 1 to 1000 and lease from 1 second to 24 hours' using errcode = 'DDARG';
  end if;
  for v_job in
    select j.id, j.run_id, j.tenant_id, j.attempts, j.claimed_by
    from deed.job_queue j
    where j.status = 'locked' and j.expanded_at is null and j.lease_until <= v_now
    order by j.lease_until
    limit p_limit + 20 -- in place of those whose run is locked
    for update skip locked
  loop
    exit when v_taken = p_limit;
    if v_job.attempts >= 4 then
      perform from deed.campaign_runs r where r.id = v_job.run_id for no key update skip locked; -- which may end with it
      continue when not found;
      v_taken := v_taken + 1;
      perform deed.fail_job(v_job.id, format('the lease of %s ran out before it was expanded', v_job.claimed_by), false, p_worker);
      continue;
    end if;
    v_taken := v_taken + 1;
    update deed.job_queue j
    set status = 'queued', attempts = j.attempts + 1, claim = null, claimed_by = null, lease_until = null, process_after = v_now
    where j.id = v_job.id;
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
    values (v_job.tenant_id, v_job.run_id, p_worker, 'take back', 'job', v_job.id::text, 'locked', 'queued', format('the lease of %s ran out', v_job.claimed_by));
  end loop;

  -- The queue is everybody's: what stands first and is locked must not keep those behind it.
  for v_look in 1..20 loop
    v_found := array(
      select j.id
      from deed.job_queue j
      where j.status = 'queued' and j.process_after between v_from and v_now and j.run_id <> all (v_shut) and j.id <> all (v_jobs)
        and not exists (select from deed.tenant_removals r where r.tenant_id = j.tenant_id)
      order by j.process_after
      limit p_limit - cardinality(v_jobs)
      for update skip locked
    );
    v_begin := v_begin || array(
      select r.id from deed.campaign_runs r
      where r.id = any (array(select j.run_id from deed.job_queue j where j.id = any (v_found))) and r.status = 'queued' and r.id <> all (v_begin)
      order by r.id
      for no key update skip locked
    );
    v_late := array(
      select distinct r.id
      from unnest(v_found) u(id)
      cross join lateral (select o.run_id from deed.job_queue o where o.id = u.id) j
      cross join lateral (select o.id from deed.campaign_runs o where o.id = j.run_id and o.status = 'queued') r
      where r.id <> all (v_begin)
    );
    v_jobs := v_jobs || array(
      select u.id
      from unnest(v_found) with ordinality u(id, n)
      cross join lateral (select o.run_id from deed.job_queue o where o.id = u.id) j
      where j.run_id <> all (v_late)
      order by u.n
    );
    exit when v_late = '{}';
    v_shut := v_shut || v_late;
    v_from := coalesce((select min(j.process_after) from deed.job_queue j where j.id = any (v_found)), v_from);
  end loop;
  if v_late <> '{}' then
    update deed.job_queue j
    set process_after = v_now + interval '1 second'
    where j.id = any (array(
      select o.id
      from deed.job_queue o
      where o.status = 'queued' and o.process_after <= v_now and o.run_id = any (v_shut)
      order by o.process_after
      limit 1000
      for update skip locked
    ));
  end if;
  if cardinality(v_jobs) = 0 then
    return;
  end if;
  v_claim := deed.claim_number();
  return query
  with locked as (
    update deed.job_queue j
    set status = 'locked', claim = v_claim, claimed_by = p_worker, lease_until = v_now + p_lease
    where j.id = any (v_jobs)
    returning j.id, j.run_id, j.tenant_id, j.claim
  ),
  audited as (
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status)
    select l.tenant_id, l.run_id, p_worker, 'claim', 'job', l.id::text, 'queued', 'locked' from locked l
  )
  select l.id, l.run_id, l.tenant_id, l.claim from locked l;
  with begun as (
    update deed.campaign_runs r
    set status = 'running', started_at = v_now
    where r.id = any (v_begin)
    returning r.id, r.tenant_id
  )
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status)
  select b.tenant_id, b.id, p_worker, 'begin', 'run', b.id::text, 'queued', 'running' from begun b;
end
$$;
