-- deed.end_runs: end those of these runs of campaigns of which every job has ended: the one
-- place where a run's status is computed (C3). completed if each job is, without a failure;
-- failed if none is; else partial. The caller has ended jobs of theirs in this transaction,
-- and locks no other job after it.
create or replace function deed.end_runs(
  p_runs   uuid[],
  p_worker text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  -- One after the other: of two that end the last two jobs at once each would take the
  -- other's for open. The next statement sees what the first one has done.
  perform from (select r.id from deed.campaign_runs r where r.id = any (p_runs) order by r.id for no key update) locked;
  with over as (
    select j.run_id, case
        when bool_and(j.status = 'completed' and j.failed + j.dead + j.missed = 0) then 'completed'
        when bool_or(j.status = 'completed') then 'partial'
        else 'failed' end as status
    from deed.job_queue j
    where j.run_id = any (p_runs)
    group by j.run_id
    having bool_and(j.finished_at is not null)
  ),
  ended as (
    update deed.campaign_runs r
    set status = o.status, finished_at = v_now
    from over o
    where r.id = o.run_id and r.status = 'running'
    returning r.id, r.tenant_id, r.status, r.provider
  ),
  free as (
    delete from deed.delivery_holds h using ended e where h.run_id = e.id
  ),
  unpaced as (
    delete from deed.rate_limits b using ended e where b.provider = e.provider and b.run_id = e.id
  )
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status)
  select e.tenant_id, e.id, p_worker, 'end', 'run', e.id::text, 'running', e.status from ended e;
end
$$;
