-- deed.retry_step: have a step tried again that has failed and waits for a person: its next
-- logical attempt is due now (R5). With p_new_key its effects get a new key: the person knows that the
-- attempts before did nothing, or wants it twice; else the key stays, by which the other end knows a repeat. For operators; it is in
-- the audit log. Raises DDARG without a reason, DDNFD for an unknown run, DDTEN for another tenant's than the transaction has set or the login is bound to, DDCON
-- for a step that does not wait for a person.
create or replace function deed.retry_step(
  p_run     uuid,
  p_step    text,
  p_reason  text,
  p_new_key boolean default false,
  p_by      text default null
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_run     record;
  v_attempt int;
begin
  if coalesce(p_reason, '') = '' then
    raise exception 'retry_step: a reason is needed' using errcode = 'DDARG';
  end if;
  select r.tenant_id, r.status, r.plan_id, r.plan_version into v_run from deed.runs r where r.run_id = p_run for no key update;
  if not found then
    raise exception 'retry_step: there is no run %', p_run using errcode = 'DDNFD';
  end if;
  -- As deed.write_events has it, through which all else goes that is done to a run: nothing is appended here.
  if (coalesce(current_setting('app.current_tenant_id', true), '') <> '' or exists (select from deed.tenant_logins l where l.login = session_user)
      or exists (select from deed.shut_logins l where l.login = session_user))
    and (deed.current_tenant() = v_run.tenant_id) is not true
  then
    raise exception 'retry_step: the run is of another tenant than the transaction has set, or than this login is bound to' using errcode = 'DDTEN';
  end if;
  update deed.run_steps s
  set attempt = s.attempt + 1, engine_attempt = 0, lost_claims = 0, ready = true, process_after = clock_timestamp(), verdict = null, begun_at = null, begun_claim = null, deadline = null, offer = null,
    claim = null, claimed_at = null, claimed_by = null, lease_until = null,
    key_n = case when p_new_key then s.attempt + 1 else s.key_n end,
    queue = (
      select p.queue from deed.plan_steps p
      where p.tenant_id = v_run.tenant_id and p.plan_id = v_run.plan_id and p.plan_version = v_run.plan_version and p.place = s.place
    )
  where s.run_id = p_run and s.step_id = p_step and s.verdict = 'HOLD_OVER'
  returning s.attempt into v_attempt;
  if not found then
    raise exception 'retry_step: step % of run %, which is %, does not wait for a person', quote_literal(left(p_step, 100)), p_run, v_run.status
      using errcode = 'DDCON', hint = 'What failed where the plan has no on_failure: {hold: …} has failed for good.';
  end if;
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
  values (v_run.tenant_id, coalesce(nullif(left(p_by, 200), ''), session_user), 'retry', 'run', p_run::text, left(p_reason, 1000),
    jsonb_build_object('step', p_step, 'attempt', v_attempt, 'new_key', p_new_key));
  return v_attempt;
end
$$;
