-- deed.stop_run: cancel a run: RunCancelled, and none of its steps begins any more. What is being done
-- is not undone; its worker hears at the next renewal of its lease that it has lost it. For operators; it is in the audit
-- log. A run that is cancelled stays so, and false is returned. Raises DDARG without a reason, DDNFD, DDTEN for another tenant's run than the transaction has set or the login
-- is bound to, DDCON for a run that has ended otherwise.
create or replace function deed.stop_run(
  p_run    uuid,
  p_reason text,
  p_by     text default null
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_run  record;
  v_rows tid[];
begin
  if coalesce(p_reason, '') = '' then
    raise exception 'stop_run: a reason is needed' using errcode = 'DDARG';
  end if;
  select r.tenant_id, r.status, r.finished_at into v_run from deed.runs r where r.run_id = p_run for no key update;
  if not found then
    raise exception 'stop_run: there is no run %', p_run using errcode = 'DDNFD';
  end if;
  -- As deed.write_events has it, which is not asked where nothing is appended.
  if (coalesce(current_setting('app.current_tenant_id', true), '') <> '' or exists (select from deed.tenant_logins l where l.login = session_user)
      or exists (select from deed.shut_logins l where l.login = session_user))
    and (deed.current_tenant() = v_run.tenant_id) is not true
  then
    raise exception 'stop_run: the run is of another tenant than the transaction has set, or than this login is bound to' using errcode = 'DDTEN';
  end if;
  if v_run.status = 'CANCELLED' then
    return false;
  elsif v_run.finished_at is not null then
    raise exception 'stop_run: run % has ended, it is %', p_run, v_run.status using errcode = 'DDCON';
  end if;
  -- In two statements: a row that somebody has claimed while the first one waited, that one does not see.
  v_rows := array(select o.ctid from deed.run_steps o where o.run_id = p_run order by o.place for update);
  delete from deed.run_steps s where s.ctid = any (v_rows);
  perform deed.write_events(array[p_run], '{RunCancelled}', array[null::text], '{1}', p_data => array[jsonb_build_object('reason', left(p_reason, 1000))]);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
  values (v_run.tenant_id, coalesce(nullif(left(p_by, 200), ''), session_user), 'cancel', 'run', p_run::text, v_run.status, 'CANCELLED', left(p_reason, 1000));
  return true;
end
$$;
