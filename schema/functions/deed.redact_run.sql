-- deed.redact_run: take away what people have put into a run that has ended: its input, and
-- what its events say but for what the run is by them. Hashes, times, types, numbers and
-- keys stay, so that every proof still holds (D12). For operators; it is in the audit log.
--
-- Of an event's data started_at, steps, engine_run_ref, an error's category, code and retryable stay, and the number of
-- the claim, by which who ends a step again is told that it was recorded (deed.finish_steps). The snapshots go; run.Redact computes them anew, else a projector does (deed.run_behind). While the
-- transaction is open nobody stores one of this run, and those of others are not held up. Messages
-- that were published go with the retention of deed.run_events. Returns how many events were
-- emptied; again it changes nothing. Raises DDARG without a reason, DDNFD, DDTEN for another tenant's than the transaction has set or the login is bound to, DDCON for a run that has not ended.
create or replace function deed.redact_run(
  p_run    uuid,
  p_reason text,
  p_by     text default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run    deed.runs%rowtype;
  v_events bigint;
begin
  if coalesce(p_reason, '') = '' then
    raise exception 'redact_run: a reason is needed' using errcode = 'DDARG';
  end if;
  select r.* into v_run from deed.runs r where r.run_id = p_run for update; -- against who stores a snapshot
  if not found then
    raise exception 'redact_run: there is no run %', p_run using errcode = 'DDNFD';
  elsif (coalesce(current_setting('app.current_tenant_id', true), '') <> '' or exists (select from deed.tenant_logins l where l.login = session_user)
      or exists (select from deed.shut_logins l where l.login = session_user))
    and (deed.current_tenant() = v_run.tenant_id) is not true
  then
    raise exception 'redact_run: the run is of another tenant than the transaction has set, or than this login is bound to' using errcode = 'DDTEN';
  elsif v_run.finished_at is null then
    raise exception 'redact_run: run % is %, and what it needs cannot be taken from it before it has ended', p_run, v_run.status using errcode = 'DDCON';
  end if;
  perform set_config('deed.act', 'run redaction', true);
  update deed.run_log l
  set redacted_sha256 = sha256(convert_to(l.event_data::text, 'UTF8')),
    -- As they stand, nulls in them, too: what a snapshot says of them is the same afterwards.
    event_data = (
      select coalesce(jsonb_object_agg(d.key, case when d.key <> 'error' then d.value else (
          select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(d.value) e where e.key in ('category', 'code', 'retryable')
        ) end), '{}')
      from jsonb_each(l.event_data) d
      where d.key in ('started_at', 'steps', 'engine_run_ref') or d.key = 'error' and jsonb_typeof(d.value) = 'object' or d.key = 'claim' and jsonb_typeof(d.value) = 'number'
    )
  where l.run_id = p_run and l.redacted_sha256 is null;
  get diagnostics v_events = row_count;
  update deed.runs r set input = null, redacted_at = coalesce(r.redacted_at, clock_timestamp()) where r.run_id = p_run;
  perform set_config('deed.act', '', true);
  if v_events > 0 or v_run.redacted_at is null then
    delete from deed.run_snapshots s where s.run_id = p_run;
    insert into deed.run_behind (run_id, seq)
    select p_run, l.run_seq from deed.run_log l where l.run_id = p_run order by l.run_seq desc limit 1;
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected)
    values (v_run.tenant_id, coalesce(nullif(left(p_by, 200), ''), session_user), 'redact', 'run', p_run::text, left(p_reason, 1000), v_events);
  end if;
  return v_events;
end
$$;
