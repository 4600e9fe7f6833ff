-- deed.write_ends: append what became of steps, each with its StepStarted where the log has none, and after them the ends of runs, and write what runs are
-- then into their rows, once. For deed.finish_steps and deed.record_steps, at less than what deed.write_events costs: the caller has locked the runs and checked the claims, so little is looked for.
--
-- The first eight arrays are the runs, in the order of their ids: with the status that each has in the end, RUNNING or PAUSED before, whether its row is changed, and its bits. The others are the events: p_of is which of
-- the runs, p_begun when a step began whose end it is, null for all else. No step is there twice. Returns false, and then nothing is written, where not all is as it mostly
-- is: deed.write_events says what is wrong, or knows what to do. Promises and the order of what is read are the same.
create or replace function deed.write_ends(
  p_runs     uuid[],
  p_tenants  uuid[],
  p_versions text[],
  p_statuses text[],
  p_changed  bool[],
  p_done     bytea[],
  p_passed   bytea[],
  p_failing  bool[],
  p_of       int[],
  p_types    text[],
  p_steps    text[],
  p_attempts int[],
  p_engine   int[],
  p_begun    timestamptz[],
  p_data     jsonb[],
  p_adapter  text
) returns boolean
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
declare
  v_count  int := cardinality(p_of);
  v_xid    xid8 := pg_current_xact_id(); -- before what follows: see deed.write_events
  v_now    timestamptz := clock_timestamp();
  v_low    uuid := p_runs[1];
  v_high   uuid := p_runs[cardinality(p_runs)];
  v_s      record;
  v_last   bigint[]; -- of each run: the number of its newest event
  v_odd    boolean;
  e_key    bytea[];
  e_begin  bytea[];
  e_old    bigint[];
  v_seqs   bigint[] := '{}';
  v_starts bigint[] := '{}'; -- the numbers of the StepStarted that ends bring
  v_i      int;
  v_rest   text;
begin
  select s.bound_logins, s.removed_tenants, t.mode, t.list_version, r.names, r.slots, r.lasts into v_s
  from deed.settings s
  cross join lateral (select t.* from deed.topics t where t.topic = 'deed.run_events' and t.own) t
  cross join lateral (
    select array_agg(q.name) as names, array_agg(deed.slot(t.slot_base, q.name, 0)) as slots, array_agg(q.last) as lasts
    from (
      select p_runs[i]::text as name,
        coalesce((select l.run_seq from deed.run_log l where l.run_id = p_runs[i] and l.run_id between v_low and v_high order by l.run_seq desc limit 1), 0) as last
      from generate_series(1, cardinality(p_runs)) i
      offset 0
    ) q
  ) r;
  if v_s.mode is distinct from 'stream' or coalesce(current_setting('app.current_tenant_id', true), '') <> '' or length(p_adapter) > 40
    or '1970-01-01Z' > any (p_begun) or '10000-01-01Z' <= any (p_begun)
  then
    return false;
  end if;
  if v_s.bound_logins and (exists (select from deed.tenant_logins l where l.login = session_user) or exists (select from deed.shut_logins l where l.login = session_user))
    or v_s.removed_tenants and exists (select from deed.tenant_removals r where r.tenant_id = any (p_tenants))
  then
    return false;
  end if;
  v_last := v_s.lasts;
  for n in 1..v_count loop
    if pg_column_size(p_data[n]) > 8000 or octet_length(p_data[n]::text) > 8000 then -- deep ones are among them
      return false;
    end if;
  end loop;

  -- Each look is as deed.write_events has it. An end of the attempt, or none of the one before it, is somebody else's, who appends events by himself.
  -- A run that goes on was approved and has started, so where there are two events none is of a step, and nothing is looked for.
  select array_agg(q.key), array_agg(q.begin_key), array_agg(q.old), bool_or(q.odd)
  into e_key, e_begin, e_old, v_odd
  from (
    select e.key, e.begin_key, case when e.begin_key is not null and e.last > 2 then (
        select l.run_seq
        from deed.run_log l
        where l.run_id = e.run_id and l.run_id between v_low and v_high and l.idempotency_key >= e.begin_key and l.idempotency_key <= e.begin_key
        order by l.idempotency_key
        limit 1
      ) end as old,
      case when p_steps[e.n] is not null then coalesce(case when e.last > 2 then (
        select l.logical_attempt
        from deed.run_log l
        where l.run_id = e.run_id and l.run_id between v_low and v_high and l.step_id = p_steps[e.n] and l.logical_attempt >= p_attempts[e.n] - 1
          and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
        order by l.logical_attempt desc
        limit 1
      ) end, 0) <> p_attempts[e.n] - 1 end as odd
    from (
      select n, p_runs[p_of[n]] as run_id, v_last[p_of[n]] as last, deed.event_key(p_runs[p_of[n]], coalesce(p_steps[n], 'RUN'), p_attempts[n], p_types[n], p_versions[p_of[n]]) as key,
        case when p_begun[n] is not null then deed.event_key(p_runs[p_of[n]], p_steps[n], p_attempts[n], 'StepStarted', p_versions[p_of[n]]) end as begin_key
      from generate_series(1, v_count) n
      offset 0 -- or each look computes the key
    ) e
  ) q;
  if v_odd then
    return false;
  end if;
  for n in 1..v_count loop
    v_i := p_of[n];
    v_starts[n] := case when e_begin[n] is not null and e_old[n] is null then v_last[v_i] + 1 end;
    v_seqs[n] := coalesce(v_starts[n], v_last[v_i]) + 1;
    v_last[v_i] := v_seqs[n];
  end loop;

  v_rest := ',"persistedAt":' || to_json(v_now)::text || coalesce(',"adapterVersion":' || to_json(p_adapter)::text, '');
  with appended as materialized (
    select p_runs[p_of[a.n]] as run_id, v_s.names[p_of[a.n]] as name, v_s.slots[p_of[a.n]] as slot, p_tenants[p_of[a.n]] as tenant_id, p_steps[a.n] as step, p_attempts[a.n] as attempt, p_engine[a.n] as engine,
      case when a.brought then v_starts[a.n] else v_seqs[a.n] end as seq,
      case when a.brought then 'StepStarted' else p_types[a.n] end as type,
      case when a.brought then e_begin[a.n] else e_key[a.n] end as key,
      case when a.brought then p_begun[a.n] else v_now end as emitted_at,
      case when a.brought then '{}' else p_data[a.n] end as data
    from (
      select n, b = 0 as brought
      from generate_series(1, v_count) n
      cross join generate_series(0, 1) b
      where b = 1 or v_starts[n] is not null
      order by n, b
      offset 0 -- or each look into an array computes them
    ) a
  ),
  events as (
    insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, engine_attempt, event_type, step_id, idempotency_key, adapter_version, event_data)
    select a.run_id, a.tenant_id, a.seq, a.emitted_at, v_now, a.attempt, a.engine, a.type, a.step, a.key, p_adapter, a.data from appended a
  )
  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, key, type, content_type, payload)
  select nextval('deed.log_seq'), v_xid, a.slot, v_s.list_version, a.tenant_id, v_now, 'deed.run_events', a.name, a.type, 'application/json',
    deed.event_message(a.name, a.seq, deed.run_event_id(a.run_id, a.seq), a.type, a.step, a.attempt, a.engine, a.key, a.emitted_at, v_rest, null, null, null, a.data)
  from appended a;
  if true = any (p_changed) then
    update deed.runs r
    set status = p_statuses[i], finished_at = case when p_statuses[i] in ('COMPLETED', 'FAILED') then v_now end, done = p_done[i], passed = p_passed[i], failing = p_failing[i]
    from generate_series(1, cardinality(p_runs)) i
    where r.run_id = p_runs[i] and p_changed[i];
  end if;
  return true;
end
$$;
