-- deed.resume_run: let a campaign's run that is paused go on; the time in which it was paused
-- does not count for when it expires, and what had failed by now not for when it pauses itself
-- again (deed.pause_failing). Again is harmless. Raises DDTEN, DDNFD, DDCON for a run
-- that has ended or is cancelled.
create or replace function deed.resume_run(
  p_run    uuid,
  p_reason text default null,
  p_tenant uuid default null,
  p_actor  text default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant uuid := deed.tenant_of_call('resume_run', p_tenant);
  v_run    deed.campaign_runs;
begin
  select r.* into v_run from deed.campaign_runs r where r.id = p_run and r.tenant_id = v_tenant for no key update;
  if not found then
    raise exception 'resume_run: there is no run %', p_run using errcode = 'DDNFD';
  elsif v_run.finished_at is not null or v_run.cancelled_at is not null then
    raise exception 'resume_run: run % is %', p_run, case when v_run.finished_at is null then 'cancelled' else v_run.status end using errcode = 'DDCON';
  elsif v_run.paused_at is null then
    return;
  end if;
  update deed.campaign_runs r
  set paused_at = null, paused_why = null, pause_base = case when r.options ? 'pause_on' then (select to_jsonb(e) from deed.run_ends(p_run) e) end, expires_at = r.expires_at + greatest(interval '0', clock_timestamp() - greatest(r.paused_at, r.scheduled_for))
  where r.id = p_run;
  delete from deed.delivery_holds h where h.run_id = p_run;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, reason)
  values (v_tenant, p_run, coalesce(nullif(left(p_actor, 200), ''), session_user), 'resume', 'run', p_run::text, left(p_reason, 2000));
end
$$;
