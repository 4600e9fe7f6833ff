-- deed.cancel_run: end a campaign's run: nothing of it begins but what is sending, of which
-- it returns how many there are, and which ends by itself; as of deed.pause_run, that is certain
-- once it is asked again after the commit. What is queued, and members whose job is not
-- expanded, get rows that are skipped as cancelled (deed.sweep_runs, deed.expand_job); then
-- the run has ended. There is no way back; again changes nothing. Raises DDTEN, DDNFD, DDCON
-- for a run that has ended, and 55P03 where attempts do not end: it is cancelled by then, try again.
create or replace function deed.cancel_run(
  p_run    uuid,
  p_reason text default null,
  p_tenant uuid default null,
  p_actor  text default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_xid    xid8 := pg_current_xact_id(); -- before it is asked whether the tenant was removed: who removes it waits for this
  v_tenant uuid := deed.tenant_of_call('cancel_run', p_tenant);
  v_run    deed.campaign_runs;
begin
  select r.* into v_run from deed.campaign_runs r where r.id = p_run and r.tenant_id = v_tenant for no key update;
  if not found then
    raise exception 'cancel_run: there is no run %', p_run using errcode = 'DDNFD';
  elsif v_run.finished_at is not null then
    raise exception 'cancel_run: run % is %', p_run, v_run.status using errcode = 'DDCON';
  end if;
  if v_run.cancelled_at is null then
    -- A pause's hold goes for one of its own: that nobody is waited for before it is cancelled, which a wait in vain would undo.
    delete from deed.delivery_holds h where h.run_id = p_run;
    update deed.campaign_runs r set cancelled_at = clock_timestamp(), paused_at = null, paused_why = null where r.id = p_run;
    -- Not to wait for what is scheduled. Who has one locked expands it as it is.
    update deed.job_queue j
    set process_after = clock_timestamp()
    where j.id = any (array(
      select q.id from deed.job_queue q where q.run_id = p_run and q.status = 'queued' and q.process_after > clock_timestamp() for update skip locked
    ));
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, reason)
    values (v_tenant, p_run, coalesce(nullif(left(p_actor, 200), ''), session_user), 'cancel', 'run', p_run::text, left(p_reason, 2000));
  end if;
  return deed.hold_run(p_run, v_tenant);
end
$$;
