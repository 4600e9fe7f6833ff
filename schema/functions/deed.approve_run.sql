-- deed.approve_run: a person's approval of a run whose plan wants one: RunApproved, and it begins
-- (deed.start_runs). For operators; it is in the audit log. Raises DDARG without a reason, DDNFD, DDTEN for another tenant's run than the transaction has set or the login
-- is bound to, DDCON for a run that is not PENDING.
create or replace function deed.approve_run(
  p_run    uuid,
  p_reason text,
  p_by     text default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_run record;
begin
  if coalesce(p_reason, '') = '' then
    raise exception 'approve_run: a reason is needed' using errcode = 'DDARG';
  end if;
  select r.tenant_id, r.status into v_run from deed.runs r where r.run_id = p_run for no key update;
  if not found then
    raise exception 'approve_run: there is no run %', p_run using errcode = 'DDNFD';
  end if;
  -- As deed.write_events has it, which is not asked where nothing is appended.
  if (coalesce(current_setting('app.current_tenant_id', true), '') <> '' or exists (select from deed.tenant_logins l where l.login = session_user)
      or exists (select from deed.shut_logins l where l.login = session_user))
    and (deed.current_tenant() = v_run.tenant_id) is not true
  then
    raise exception 'approve_run: the run is of another tenant than the transaction has set, or than this login is bound to' using errcode = 'DDTEN';
  end if;
  if v_run.status <> 'PENDING' then
    raise exception 'approve_run: run % waits for no approval, it is %', p_run, v_run.status using errcode = 'DDCON';
  end if;
  perform deed.write_events(array[p_run], '{RunApproved}', array[null::text], '{1}', p_data => array[jsonb_build_object('reason', left(p_reason, 1000))]);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
  values (v_run.tenant_id, coalesce(nullif(left(p_by, 200), ''), session_user), 'approve', 'run', p_run::text, 'PENDING', 'APPROVED', left(p_reason, 1000));
  perform deed.start_runs(array[p_run]);
end
$$;
