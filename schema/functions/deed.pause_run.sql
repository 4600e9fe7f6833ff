-- deed.pause_run: let nothing of a campaign's run begin until it is resumed. Once the
-- caller's transaction has committed, nothing does but what was being written at that moment;
-- asked again afterwards, it waits for that too, and returns how many deliveries are sending:
-- nothing else is begun. Its jobs go on to be expanded, and it does not expire meanwhile. Again
-- changes nothing. Raises DDTEN, DDNFD, DDCON for a run that has ended or is cancelled, and
-- 55P03 where attempts do not end: it is paused by then, try again.
create or replace function deed.pause_run(
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
  v_tenant uuid := deed.tenant_of_call('pause_run', p_tenant);
  v_run    deed.campaign_runs;
begin
  select r.* into v_run from deed.campaign_runs r where r.id = p_run and r.tenant_id = v_tenant for no key update;
  if not found then
    raise exception 'pause_run: there is no run %', p_run using errcode = 'DDNFD';
  elsif v_run.finished_at is not null or v_run.cancelled_at is not null then
    raise exception 'pause_run: run % is %', p_run, case when v_run.finished_at is null then 'cancelled' else v_run.status end using errcode = 'DDCON';
  end if;
  if v_run.paused_at is null then
    update deed.campaign_runs r set paused_at = clock_timestamp() where r.id = p_run;
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, reason)
    values (v_tenant, p_run, coalesce(nullif(left(p_actor, 200), ''), session_user), 'pause', 'run', p_run::text, left(p_reason, 2000));
  end if;
  return deed.hold_run(p_run, v_tenant);
end
$$;
