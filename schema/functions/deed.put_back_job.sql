-- deed.put_back_job: give back a job that the caller has claimed and could not expand since
-- somebody holds what it has to lock, such as a contact in a transaction that was left open, or since it is to stop.
-- It is queued again and due in a while, from two seconds to a minute, as it is long ago that it was due first, which going
-- back does not change; that is no attempt (C5). Returns queued; null if the claim is not the caller's.
create or replace function deed.put_back_job(
  p_job    uuid,
  p_claim  bigint,
  p_error  text,
  p_worker text
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_job deed.job_queue;
begin
  update deed.job_queue j
  set status = 'queued', claim = null, claimed_by = null, lease_until = null, last_error = left(p_error, 4000),
    process_after = v_now + greatest(interval '2 seconds', least(interval '1 minute', (v_now - case when j.part = 'rest' then coalesce(r.winner_at, r.scheduled_for) else r.scheduled_for end) / 4))
  from deed.campaign_runs r
  where r.id = j.run_id and j.id = p_job and j.claim = p_claim and j.status = 'locked' and j.expanded_at is null
  returning j.* into v_job;
  if not found then
    return null;
  end if;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
  values (v_job.tenant_id, v_job.run_id, p_worker, 'put back', 'job', p_job::text, 'locked', 'queued', left(p_error, 2000));
  return 'queued';
end
$$;
