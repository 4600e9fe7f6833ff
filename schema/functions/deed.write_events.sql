-- deed.write_events: append events of any type; what it takes, returns and raises is
-- deed.append_events's. For the functions that decide them, which call it as the owner.
--
-- The runs' rows are locked in the order of their ids, and changed only where a status
-- changes. Numbers follow the newest in the index, not a counter in the run's row, which
-- slowed from 150 to 435 µs in 12,000 appends beside an old snapshot where this stayed at
-- 110. What the log has to say of the events is read in one statement, and
-- what is appended is written in one; what lies between them is done in memory. No two of the
-- statements' parts are joined: without hash and merge joins that is quadratic.
create or replace function deed.write_events(
  p_runs            uuid[],
  p_types           text[],
  p_steps           text[],
  p_attempts        int[],
  p_engine_attempts int[] default null,
  p_emitted_at      timestamptz[] default null,
  p_data            jsonb[] default null,
  p_signals         uuid[] default null,
  p_parents         uuid[] default null,
  p_adapter         text default null
) returns table (ordinal int, run_seq bigint, event_id uuid, repeated boolean)
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
  v_count    int := coalesce(cardinality(p_runs), 0);
  v_now      timestamptz := clock_timestamp();
  v_xid      xid8;
  v_settings deed.settings%rowtype;
  v_topic    deed.topics%rowtype;
  v_text     text := coalesce(current_setting('app.current_tenant_id', true), '');
  v_tenant   uuid;
  v_bad      record;
  v_begun    timestamptz[];
  -- The runs, in the order of their ids, by number.
  v_ids      uuid[];
  v_tenants  uuid[];
  v_statuses text[];
  v_versions text[];
  v_last     bigint[];
  -- deed.run_transitions: what is allowed, as type and status, and where it leads.
  v_edges    text[];
  v_leads    text[];
  -- The events given: their numbers, and those of their StepStarted.
  v_seqs     bigint[] := array_fill(null::bigint, array[v_count]);
  v_starts   bigint[] := array_fill(null::bigint, array[v_count]);
  v_repeats  boolean[] := array_fill(false, array[v_count]);
  -- What is appended: of which event, negative for a StepStarted before its end; of which run; number; key.
  o_n        int[] := '{}';
  o_i        int[] := '{}';
  o_seq      bigint[] := '{}';
  o_key      bytea[] := '{}';
  v_changed  boolean := false;
  v_started  int[]; -- of each run: its RunStarted
  v_differs  int[] := '{}';
  v_e        record;
  v_edge     int;
  v_rest     text; -- of messages: what all have
begin
  if v_count = 0 then
    return;
  end if;
  if v_count > 10000 then
    raise exception 'append_events: % events at once; at most 10000 are possible', v_count using errcode = 'DDARG';
  elsif p_types is null or p_steps is null or p_attempts is null or exists (
    select from unnest(array[
      array_dims(p_runs), array_dims(p_types), array_dims(p_steps), array_dims(p_attempts), array_dims(p_engine_attempts),
      array_dims(p_emitted_at), array_dims(p_data), array_dims(p_signals), array_dims(p_parents)
    ]) d
    where d <> format('[1:%s]', v_count)
  ) or array_dims(p_types) is null or array_dims(p_steps) is null or array_dims(p_attempts) is null then
    raise exception 'append_events: the arrays must have one dimension, count from 1, and be as long as the % runs', v_count using errcode = 'DDARG';
  elsif length(p_adapter) > 40 then
    raise exception 'append_events: an adapter version of % characters is over the limit of 40', length(p_adapter) using errcode = 'DDARG';
  end if;

  select n, problem into v_bad
  from (
    select n, case
        when p_runs[n] is null then 'the run is null'
        when (p_types[n] = any ('{RunApproved,RunStarted,StepStarted,StepCompleted,StepFailed,StepSkipped,SignalAccepted,SignalRejected,RunPaused,RunResumed,RunCompleted,RunFailed,RunCancelled}')) is not true
          then format('there is no event of type %s', coalesce(quote_literal(left(p_types[n], 60)), 'null'))
        when left(p_types[n], 4) <> 'Step' and p_steps[n] is not null then format('%s is of the run, and has no step', p_types[n])
        when left(p_types[n], 4) = 'Step' and coalesce(p_steps[n], '') = '' then format('%s is of a step, which is not named', p_types[n])
        when p_steps[n] = 'RUN' then 'no step may be called RUN: in keys that is the run itself'
        when length(p_steps[n]) > 200 then format('a step''s name of %s characters is over the limit of 200', length(p_steps[n]))
        when (p_attempts[n] >= 1) is not true then format('logical attempt %s: they count from 1', coalesce(p_attempts[n]::text, 'null'))
        when p_engine_attempts[n] < 1 then format('engine attempt %s: they count from 1', p_engine_attempts[n])
        when p_emitted_at[n] < '1970-01-01Z' or p_emitted_at[n] >= '10000-01-01Z' then 'emitted_at is infinite or out of range'
        when jsonb_typeof(p_data[n]) <> 'object' then 'the data are no JSON object'
        when pg_column_size(p_data[n]) > 10000 and octet_length(p_data[n]::text) > 65536
          then format('data of %s bytes are over the limit of 65536', octet_length(p_data[n]::text))
        when p_types[n] in ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected') and p_signals[n] is null
          then format('%s is caused by a signal, which is not named', p_types[n])
        when p_types[n] in ('StepCompleted', 'StepFailed')
          and ((p_data[n] ->> 'started_at') ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$') is not true
          then format('%s has no started_at in its data, in RFC 3339', p_types[n])
      end as problem
    from generate_series(1, v_count) n
  ) f
  where problem is not null
  order by n
  limit 1;
  if found then
    raise exception 'append_events: event %: %', v_bad.n, v_bad.problem using errcode = 'DDARG';
  end if;
  begin
    v_begun := array(
      select case when p_types[n] in ('StepCompleted', 'StepFailed') then (p_data[n] ->> 'started_at')::timestamptz end
      from generate_series(1, v_count) n
    );
  exception when data_exception then
    raise exception 'append_events: a started_at is no time: %', sqlerrm using errcode = 'DDARG';
  end;

  -- The order matters: the transaction's id, then what it reads of the subscriptions
  -- (deed.backfill relies on it) and of tenants that were removed, then the log's numbers.
  v_xid := pg_current_xact_id();
  select s.* into v_settings from deed.settings s;
  select t.* into v_topic from deed.topics t where t.topic = 'deed.run_events' and t.own;
  if v_settings is null or v_topic.mode is distinct from 'stream' then
    raise exception 'append_events: the settings or the topic deed.run_events cannot be read, or it is not deed''s own'
      using errcode = 'DDCON', hint = 'Run deed migrate up as the owner.';
  end if;
  if v_text <> '' or v_settings.bound_logins then
    v_tenant := deed.current_tenant();
    if v_tenant is null and v_text <> '' then
      raise exception 'append_events: app.current_tenant_id is not a UUID, or is a tenant that this login is not bound to' using errcode = 'DDTEN';
    end if;
  end if;
  select array_agg(q.run_id), array_agg(q.tenant_id), array_agg(q.status), array_agg(q.plan_version) into v_ids, v_tenants, v_statuses, v_versions
  from (
    select r.run_id, r.tenant_id, r.status, r.plan_version
    from deed.runs r
    where r.run_id = any (p_runs)
    order by r.run_id
    for no key update
  ) q;
  if (select count(distinct u) from unnest(p_runs) u) <> coalesce(cardinality(v_ids), 0) then
    raise exception 'append_events: there is no run %', (select u from unnest(p_runs) u where (u = any (v_ids)) is not true limit 1) using errcode = 'DDNFD';
  elsif v_tenant is not null and v_tenant <> all (v_tenants) or exists (select from unnest(v_tenants) t where t <> v_tenant) then
    raise exception 'append_events: a run is of another tenant than the transaction has set' using errcode = 'DDTEN';
  end if;
  if current_setting('transaction_isolation') <> 'read committed'
    and pg_sequence_last_value('deed.list_seq') is distinct from v_settings.list_version
  then
    lock table deed.topics in row exclusive mode; -- see deed.publish_many
    perform deed.check_lists(array['deed.run_events']);
    perform deed.check_tenants(v_tenants);
  end if;
  if v_settings.removed_tenants and exists (select from deed.tenant_removals r where r.tenant_id = any (v_tenants)) then
    raise exception 'append_events: the tenant of a run was removed' using errcode = 'DDCON';
  end if;

  v_started := array_fill(null::int, array[cardinality(v_ids)]);
  v_last := array(
    select coalesce((select l.run_seq from deed.run_log l where l.run_id = v_ids[i] order by l.run_seq desc limit 1), 0)
    from generate_series(1, cardinality(v_ids)) i
  );
  select array_agg(t.event_type || ' ' || t.from_status), array_agg(t.to_status) into v_edges, v_leads from deed.run_transitions t;

  for v_e in
    -- Each look is in the order of the index that it is meant for: by costs alone a table
    -- that nobody has analysed has its rows found by the run, all of them.
    select e.n, e.i, e.type, e.step, e.attempt, e.key, e.first_n, e.start_n, e.is_end, k.run_seq as old_seq, k.differs, e.start_key, s.run_seq as start_seq,
      case when e.step is not null then greatest(e.ended, (
        select l.logical_attempt
        from deed.run_log l
        where l.run_id = p_runs[e.n] and l.step_id = e.step and l.logical_attempt >= e.attempt - 1
          and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
        order by l.logical_attempt desc
        limit 1
      )) end as ended
    from (
      select w.*, w.type in ('StepCompleted', 'StepFailed') as is_end,
        deed.event_key(p_runs[w.n], w.subject, w.attempt, w.type, v_versions[w.i]) as key,
        case when w.type in ('StepCompleted', 'StepFailed') then deed.event_key(p_runs[w.n], w.step, w.attempt, 'StepStarted', v_versions[w.i]) end as start_key,
        min(w.n) over (partition by w.i, w.subject, w.attempt, w.type) as first_n,
        min(w.n) filter (where w.type in ('StepStarted', 'StepCompleted', 'StepFailed')) over (partition by w.i, w.subject, w.attempt) as start_n,
        max(w.attempt) filter (where w.type in ('StepCompleted', 'StepFailed', 'StepSkipped'))
          over (partition by w.i, w.subject order by w.n rows between unbounded preceding and 1 preceding) as ended
      from (
        select n, dense_rank() over (order by p_runs[n])::int as i, p_types[n] as type, p_steps[n] as step, p_attempts[n] as attempt,
          case
            when p_types[n] in ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected') then p_signals[n]::text
            else coalesce(p_steps[n], 'RUN')
          end as subject
        from generate_series(1, v_count) n
      ) w
    ) e
    left join lateral (
      select l.run_seq, case when l.redacted_sha256 is null then l.event_data <> coalesce(p_data[e.n], '{}')
          else l.redacted_sha256 <> sha256(convert_to(coalesce(p_data[e.n], '{}')::text, 'UTF8')) end as differs
      from deed.run_log l
      where l.run_id = p_runs[e.n] and l.idempotency_key >= e.key and l.idempotency_key <= e.key
      order by l.idempotency_key
      limit 1
    ) k on true
    left join lateral (
      select l.run_seq
      from deed.run_log l
      where e.is_end and l.run_id = p_runs[e.n] and l.idempotency_key >= e.start_key and l.idempotency_key <= e.start_key
      order by l.idempotency_key
      limit 1
    ) s on true
    order by e.n
  loop
    if v_e.old_seq is not null or v_e.first_n < v_e.n then
      v_seqs[v_e.n] := coalesce(v_e.old_seq, v_seqs[v_e.first_n]);
      v_repeats[v_e.n] := true;
      if coalesce(v_e.differs, p_data[v_e.n] is distinct from p_data[v_e.first_n]) then
        v_differs := v_differs || v_e.i;
      end if;
      v_starts[v_e.n] := case when v_e.type = 'StepStarted' then v_seqs[v_e.n] else v_e.start_seq end;
      continue;
    elsif v_e.type = 'StepStarted' and v_e.start_n < v_e.n then
      v_seqs[v_e.n] := v_starts[v_e.start_n]; -- which its end has brought
      v_repeats[v_e.n] := true;
      continue;
    end if;

    v_edge := array_position(v_edges, v_e.type || ' ' || v_statuses[v_e.i]);
    if v_edge is null then
      raise exception 'append_events: event %: run % is %, and takes no %', v_e.n, p_runs[v_e.n], v_statuses[v_e.i], v_e.type
        using errcode = 'DDCON', hint = 'deed.run_transitions lists what is allowed.';
    elsif v_e.step is not null and coalesce(v_e.ended, 0) <> v_e.attempt - 1 then
      raise exception 'append_events: event %: attempt % of step % of run % %', v_e.n, v_e.attempt, quote_literal(v_e.step), p_runs[v_e.n],
        case when v_e.ended >= v_e.attempt then 'has ended' else 'comes before the one before it has ended' end using errcode = 'DDCON';
    elsif v_leads[v_edge] <> v_statuses[v_e.i] then
      v_statuses[v_e.i] := v_leads[v_edge];
      v_changed := true;
      if v_e.type = 'RunStarted' then
        v_started[v_e.i] := v_e.n;
      end if;
    end if;
    if v_e.is_end then
      v_starts[v_e.n] := coalesce(v_e.start_seq, v_starts[v_e.start_n]);
      if v_starts[v_e.n] is null then
        v_last[v_e.i] := v_last[v_e.i] + 1;
        v_starts[v_e.n] := v_last[v_e.i];
        o_n := o_n || -v_e.n;
        o_i := o_i || v_e.i;
        o_seq := o_seq || v_last[v_e.i];
        o_key := o_key || v_e.start_key;
      end if;
    end if;
    v_last[v_e.i] := v_last[v_e.i] + 1;
    v_seqs[v_e.n] := v_last[v_e.i];
    if v_e.type = 'StepStarted' then
      v_starts[v_e.n] := v_last[v_e.i];
    end if;
    o_n := o_n || v_e.n;
    o_i := o_i || v_e.i;
    o_seq := o_seq || v_last[v_e.i];
    o_key := o_key || v_e.key;
  end loop;

  v_rest := ',"persistedAt":' || to_json(v_now)::text || coalesce(',"adapterVersion":' || to_json(p_adapter)::text, '');
  with appended as materialized (
    select p_runs[a.n] as run_id, v_tenants[a.i] as tenant_id, a.seq, a.type, p_steps[a.n] as step, p_attempts[a.n] as attempt, p_engine_attempts[a.n] as engine_attempt,
      a.key, case when a.brought then v_begun[a.n] else coalesce(p_emitted_at[a.n], v_now) end as emitted_at,
      case when a.brought then '{}' else coalesce(p_data[a.n], '{}') end as data, p_signals[a.n] as signal, p_parents[a.n] as parent,
      case when a.type = 'RunStarted' then p_data[a.n] -> 'engine_run_ref' end as engine_run_ref
    from (
      select abs(o_n[o]) as n, o_i[o] as i, o_seq[o] as seq, o_key[o] as key, o_n[o] < 0 as brought,
        case when o_n[o] < 0 then 'StepStarted' else p_types[o_n[o]] end as type
      from generate_series(1, cardinality(o_n)) o
    ) a
  ),
  events as (
    insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, engine_attempt, event_type, step_id, idempotency_key,
      adapter_version, engine_run_ref, caused_by_signal_id, parent_event_id, event_data)
    select a.run_id, a.tenant_id, a.seq, a.emitted_at, v_now, a.attempt, a.engine_attempt, a.type, a.step, a.key,
      p_adapter, a.engine_run_ref, a.signal, a.parent, a.data
    from appended a
  )
  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, key, type, content_type, payload)
  select m.id, v_xid, deed.slot(v_topic.slot_base, m.key, m.id), v_topic.list_version, m.tenant_id, v_now, 'deed.run_events', m.key, m.type, 'application/json',
    convert_to('{"runId":"' || m.key || '","runSeq":' || m.seq || ',"eventId":"' || deed.run_event_id(m.run_id, m.seq) || '","eventType":"' || m.type || '"'
      || coalesce(',"stepId":' || to_json(m.step)::text, '') || ',"logicalAttemptId":"' || m.attempt || '"' || coalesce(',"engineAttemptId":"' || m.engine_attempt || '"', '')
      || ',"idempotencyKey":"' || encode(m.idempotency_key, 'hex') || '","emittedAt":' || to_json(m.emitted_at)::text || v_rest
      || coalesce(',"causedBySignalId":"' || m.signal || '"', '') || coalesce(',"parentEventId":"' || m.parent || '"', '')
      || coalesce(',"engineRunRef":' || m.engine_run_ref::text, '') || ',"eventData":' || m.data::text || '}', 'UTF8')
  from (
    select nextval('deed.log_seq') as id, a.run_id::text as key, a.run_id, a.tenant_id, a.seq, a.step, a.engine_attempt, a.attempt, a.type,
      a.key as idempotency_key, a.emitted_at, a.signal, a.parent, a.engine_run_ref, a.data
    from appended a
  ) m;

  if v_changed then
    update deed.runs r
    set status = v_statuses[i], started_at = case when v_started[i] is null then r.started_at else v_now end,
      finished_at = case when v_statuses[i] in ('COMPLETED', 'FAILED', 'CANCELLED') then v_now end,
      engine_run_ref = coalesce(p_data[v_started[i]] -> 'engine_run_ref', r.engine_run_ref)
    from generate_series(1, cardinality(v_ids)) i
    where r.run_id = v_ids[i] and r.status <> v_statuses[i];
  end if;
  if v_differs <> '{}' then
    update deed.runs r set differing = r.differing + d.times
    from (select v_ids[u] as run_id, count(*)::int as times from unnest(v_differs) u group by u) d
    where r.run_id = d.run_id;
  end if;
  return query
  select n, v_seqs[n], deed.run_event_id(p_runs[n], v_seqs[n]), v_repeats[n] from generate_series(1, v_count) n;
end
$$;
