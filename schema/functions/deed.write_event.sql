-- deed.write_event: append one event of a step, at half of what deed.write_events costs: what
-- it reads it looks for in the run's own partition, and in one statement.
--
-- What is out of the ordinary, a repeat, or wrong, is left to deed.write_events: run_seq is
-- null then, and nothing is stored; only there is it said what is wrong. Promises, results and
-- the order of locks are the same. For deed.append_events, under READ COMMITTED.
create or replace function deed.write_event(
  p_run            uuid,
  p_type           text,
  p_step           text,
  p_attempt        int,
  p_engine_attempt int,
  p_emitted_at     timestamptz,
  p_data           jsonb,
  p_signal         uuid,
  p_parent         uuid,
  p_adapter        text,
  out run_seq      bigint,
  out event_id     uuid
) returns record
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set timezone = 'UTC'
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_data    jsonb := coalesce(p_data, '{}');
  v_text    text := coalesce(current_setting('app.current_tenant_id', true), '');
  v_xid     xid8;
  v_now     timestamptz;
  v_begun   timestamptz;
  v_s       record;
  v_run     record;
  v_log     record;
  v_key     bytea;
  v_start   bytea;
  v_rest    text;
  v_of      text := p_run::text;
  v_id      bigint;
begin
  if (p_type in ('StepStarted', 'StepCompleted', 'StepFailed', 'StepSkipped') and length(p_step) between 1 and 200 and p_step <> 'RUN' and p_attempt >= 1
    and coalesce(p_engine_attempt, 1) >= 1 and coalesce(p_emitted_at >= '1970-01-01Z' and p_emitted_at < '10000-01-01Z', true)
    and jsonb_typeof(v_data) = 'object' and pg_column_size(v_data) <= 8000 and octet_length(v_data::text) <= 65536 and coalesce(length(p_adapter), 0) <= 40) is not true
  then
    return;
  end if;
  if p_type in ('StepCompleted', 'StepFailed') then
    if ((v_data ->> 'started_at') ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$') is not true then
      return;
    end if;
    begin
      v_begun := (v_data ->> 'started_at')::timestamptz;
    exception when data_exception then
      return;
    end;
    if v_begun < '1970-01-01Z' or v_begun >= '10000-01-01Z' then
      return;
    end if;
  end if;

  -- The order matters: see deed.write_events.
  v_xid := pg_current_xact_id();
  select s.bound_logins, s.removed_tenants, t.mode, t.slot_base, t.list_version into v_s
  from deed.settings s
  cross join lateral (select t.* from deed.topics t where t.topic = 'deed.run_events' and t.own) t;
  if v_s.mode is distinct from 'stream' then
    return;
  end if;
  select r.tenant_id, r.status, r.plan_version into v_run from deed.runs r where r.run_id = p_run for no key update;
  v_now := clock_timestamp(); -- after the lock
  if v_run.tenant_id is null
    or (v_text <> '' or v_s.bound_logins) and (deed.current_tenant() = v_run.tenant_id) is not true
      and (v_text <> '' or deed.current_tenant() is not null or exists (select from deed.tenant_logins l where l.login = session_user) or exists (select from deed.shut_logins l where l.login = session_user))
    or v_s.removed_tenants and deed.is_removed(v_run.tenant_id)
  then
    return;
  end if;
  v_key := deed.event_key(p_run, p_step, p_attempt, p_type, v_run.plan_version);
  if v_begun is not null then
    v_start := deed.event_key(p_run, p_step, p_attempt, 'StepStarted', v_run.plan_version);
  end if;
  -- Each in the order of the index that it is meant for, as there; with the run as a parameter its
  -- partition is the only one that is opened.
  select coalesce((select l.run_seq from deed.run_log l where l.run_id = p_run order by l.run_seq desc limit 1), 0) as last,
    (
      select l.run_seq from deed.run_log l
      where l.run_id = p_run and l.idempotency_key >= v_key and l.idempotency_key <= v_key
      order by l.idempotency_key limit 1
    ) as old,
    case when v_start is not null then (
      select l.run_seq from deed.run_log l
      where l.run_id = p_run and l.idempotency_key >= v_start and l.idempotency_key <= v_start
      order by l.idempotency_key limit 1
    ) end as start,
    coalesce((
      select l.logical_attempt from deed.run_log l
      where l.run_id = p_run and l.step_id = p_step and l.logical_attempt >= p_attempt - 1 and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
      order by l.logical_attempt desc limit 1
    ), 0) as ended,
    (select t.to_status from deed.run_transitions t where t.event_type = p_type and t.from_status = v_run.status) as leads
  into v_log;
  if v_log.old is not null or v_log.ended <> p_attempt - 1 or v_log.leads is distinct from v_run.status then
    return;
  end if;

  run_seq := v_log.last;
  v_rest := ',"persistedAt":' || to_json(v_now)::text || coalesce(',"adapterVersion":' || to_json(p_adapter)::text, '');
  if v_start is not null and v_log.start is null then
    run_seq := run_seq + 1;
    event_id := deed.run_event_id(p_run, run_seq);
    insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, engine_attempt, event_type, step_id, idempotency_key,
      adapter_version, caused_by_signal_id, parent_event_id, event_data)
    values (p_run, v_run.tenant_id, run_seq, v_begun, v_now, p_attempt, p_engine_attempt, 'StepStarted', p_step, v_start, p_adapter, p_signal, p_parent, '{}');
    v_id := nextval('deed.log_seq');
    insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, key, type, content_type, payload)
    values (v_id, v_xid, deed.slot(v_s.slot_base, v_of, v_id), v_s.list_version, v_run.tenant_id, v_now, 'deed.run_events', v_of, 'StepStarted', 'application/json',
      deed.event_message(v_of, run_seq, event_id, 'StepStarted', p_step, p_attempt, p_engine_attempt, v_start, v_begun, v_rest, p_signal, p_parent, null, '{}'));
  end if;
  run_seq := run_seq + 1;
  event_id := deed.run_event_id(p_run, run_seq);
  insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, engine_attempt, event_type, step_id, idempotency_key,
    adapter_version, caused_by_signal_id, parent_event_id, event_data)
  values (p_run, v_run.tenant_id, run_seq, coalesce(p_emitted_at, v_now), v_now, p_attempt, p_engine_attempt, p_type, p_step, v_key, p_adapter, p_signal, p_parent, v_data);
  v_id := nextval('deed.log_seq');
  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, key, type, content_type, payload)
  values (v_id, v_xid, deed.slot(v_s.slot_base, v_of, v_id), v_s.list_version, v_run.tenant_id, v_now, 'deed.run_events', v_of, p_type, 'application/json',
    deed.event_message(v_of, run_seq, event_id, p_type, p_step, p_attempt, p_engine_attempt, v_key, coalesce(p_emitted_at, v_now), v_rest, p_signal, p_parent, null, v_data));
end
$$;
