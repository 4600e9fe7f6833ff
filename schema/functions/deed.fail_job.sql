-- deed.fail_job: say that the expansion of a job that is locked has failed. It is queued
-- again, later; after five times, or at once with p_final, it is dead, and ends its run if it
-- was the last one (C3). The caller has locked it. Returns its status.
create or replace function deed.fail_job(
  p_job    uuid,
  p_error  text,
  p_final  boolean,
  p_worker text
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_job deed.job_queue;
  v_to  text;
begin
  update deed.job_queue j
  set status = 'failed', attempts = j.attempts + 1, claim = null, claimed_by = null, lease_until = null, finished_at = v_now, last_error = left(p_error, 4000)
  where j.id = p_job and j.status = 'locked' and j.expanded_at is null
  returning j.* into v_job;
  if not found then
    return null;
  end if;
  v_to := case when p_final or v_job.attempts >= 5 then 'dead' else 'queued' end;
  update deed.job_queue j
  set status = v_to, finished_at = case v_to when 'dead' then v_now end, process_after = v_now + interval '1 second' * 2 ^ v_job.attempts
  where j.id = p_job;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
  values (v_job.tenant_id, v_job.run_id, p_worker, 'fail', 'job', p_job::text, 'locked', 'failed', left(p_error, 2000)),
    (v_job.tenant_id, v_job.run_id, p_worker, 'fail', 'job', p_job::text, 'failed', v_to, case when p_final then 'it cannot succeed' when v_to = 'dead' then 'its expansion has failed five times' else 'to be tried again' end);
  if v_to = 'dead' then
    perform deed.end_runs(array[v_job.run_id], p_worker);
  end if;
  return v_to;
end
$$;
