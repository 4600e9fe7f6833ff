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
  v_dims     text := '[1:' || v_count || ']';
  v_now      timestamptz;
  v_xid      xid8;
  v_bound    boolean;
  v_settled  bigint;
  v_removed  boolean;
  v_mode     text;
  v_base     int;
  v_version  bigint;
  v_text     text := coalesce(current_setting('app.current_tenant_id', true), '');
  v_tenant   uuid;
  v_problem  text;
  v_begun    timestamptz[];
  -- The runs, in the order of their ids, by number.
  v_ids      uuid[];
  v_tenants  uuid[];
  v_statuses text[];
  v_versions text[];
  v_last     bigint[];
  -- Of deed.run_transitions, what was asked for: type and status, and where it leads.
  v_edges    text[] := '{}';
  v_leads    text[] := '{}';
  -- The events given: of which run; their first one and their first start in this call, and
  -- which attempt of the step the call ends before; their keys, and what the log says of
  -- them; their numbers, and those of their StepStarted.
  e_i        int[] := '{1}';
  e_first    int[] := '{1}';
  e_start    int[] := '{1}';
  e_ended    int[] := '{null}';
  e_key      bytea[];
  e_startkey bytea[];
  e_old      bigint[];
  e_differs  boolean[];
  e_oldstart bigint[];
  e_oldended int[];
  v_seqs     bigint[] := array_fill(null::bigint, array[v_count]);
  v_starts   bigint[] := array_fill(null::bigint, array[v_count]);
  -- What is appended: of which event, negative for a StepStarted before its end; of which run; number; id; key.
  o_n        int[] := '{}';
  o_i        int[] := '{}';
  o_seq      bigint[] := '{}';
  o_id       uuid[] := '{}';
  o_key      bytea[] := '{}';
  v_changed  boolean := false;
  v_started  int[]; -- of each run: its RunStarted
  v_differs  int[] := '{}';
  v_type     text;
  v_i        int;
  v_ended    int;
  v_edge     int;
  v_lead     text;
  v_rest     text; -- of messages: what all have
begin
  if v_count = 0 then
    return;
  end if;
  if v_count > 10000 then
    raise exception 'append_events: % events at once; at most 10000 are possible', v_count using errcode = 'DDARG';
  elsif array_dims(p_runs) <> v_dims or array_dims(p_types) is distinct from v_dims or array_dims(p_steps) is distinct from v_dims
    or array_dims(p_attempts) is distinct from v_dims or array_dims(p_engine_attempts) <> v_dims or array_dims(p_emitted_at) <> v_dims
    or array_dims(p_data) <> v_dims or array_dims(p_signals) <> v_dims or array_dims(p_parents) <> v_dims
    or cardinality(p_engine_attempts) = 0 or cardinality(p_emitted_at) = 0 or cardinality(p_data) = 0 or cardinality(p_signals) = 0 or cardinality(p_parents) = 0
  then
    raise exception 'append_events: the arrays must have one dimension, count from 1, and be as long as the % runs', v_count using errcode = 'DDARG';
  elsif length(p_adapter) > 40 then
    raise exception 'append_events: an adapter version of % characters is over the limit of 40', length(p_adapter) using errcode = 'DDARG';
  end if;

  -- Expressions, and not a statement: of one event that would cost more than the looks.
  for n in 1..v_count loop
    v_problem := case
      when p_runs[n] is null then 'the run is null'
      when (p_types[n] = any ('{StepStarted,StepCompleted,StepFailed,StepSkipped,RunApproved,RunStarted,SignalAccepted,SignalRejected,RunPaused,RunResumed,RunCompleted,RunFailed,RunCancelled}')) is not true
        then format('there is no event of type %s', coalesce(quote_literal(left(p_types[n], 60)), 'null'))
      when left(p_types[n], 4) <> 'Step' and p_steps[n] is not null then format('%s is of the run, and has no step', p_types[n])
      when left(p_types[n], 4) = 'Step' and coalesce(p_steps[n], '') = '' then format('%s is of a step, which is not named', p_types[n])
      when p_steps[n] = 'RUN' then 'no step may be called RUN: in keys that is the run itself'
      when length(p_steps[n]) > 200 then format('a step''s name of %s characters is over the limit of 200', length(p_steps[n]))
      when (p_attempts[n] >= 1) is not true then format('logical attempt %s: they count from 1', coalesce(p_attempts[n]::text, 'null'))
      when p_engine_attempts[n] < 1 then format('engine attempt %s: they count from 1', p_engine_attempts[n])
      when p_emitted_at[n] < '1970-01-01Z' or p_emitted_at[n] >= '10000-01-01Z' then 'emitted_at is infinite or out of range'
      when jsonb_typeof(p_data[n]) <> 'object' then 'the data are no JSON object'
      when octet_length(p_data[n]::text) > 65536 -- however few bytes it has here: 1e131000 is 131,001 digits
        then format('data of %s bytes are over the limit of 65536', octet_length(p_data[n]::text))
      when pg_column_size(p_data[n]) > 8000 and deed.is_deep(convert_to(p_data[n]::text, 'UTF8')) then 'data have over 1000 arrays and objects in each other'
      when p_signals[n] is null and p_types[n] in ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected')
        then format('%s is caused by a signal, which is not named', p_types[n])
      when p_types[n] in ('StepCompleted', 'StepFailed')
        and ((p_data[n] ->> 'started_at') ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$') is not true
        then format('%s has no started_at in its data, in RFC 3339', p_types[n])
    end;
    if v_problem is not null then
      raise exception 'append_events: event %: %', n, v_problem using errcode = 'DDARG';
    end if;
  end loop;
  if p_types && '{StepCompleted,StepFailed}' then
    begin
      v_begun := array(
        select case when p_types[n] in ('StepCompleted', 'StepFailed') then (p_data[n] ->> 'started_at')::timestamptz end
        from generate_series(1, v_count) n
      );
    exception when data_exception then
      raise exception 'append_events: a started_at is no time: %', sqlerrm using errcode = 'DDARG';
    end;
    if '1970-01-01Z' > any (v_begun) or '10000-01-01Z' <= any (v_begun) then -- no JSON reader takes other years
      raise exception 'append_events: a started_at is out of range: it is of the years 1970 to 9999, in UTC' using errcode = 'DDARG';
    end if;
  end if;

  -- The order matters: the transaction's id, then what it reads of the subscriptions
  -- (deed.backfill relies on it) and of tenants that were removed, then the log's numbers.
  v_xid := pg_current_xact_id();
  select s.bound_logins, s.list_version, s.removed_tenants, t.mode, t.slot_base, t.list_version
  into v_bound, v_settled, v_removed, v_mode, v_base, v_version
  from deed.settings s
  cross join lateral (select t.* from deed.topics t where t.topic = 'deed.run_events' and t.own) t;
  if v_mode is distinct from 'stream' then
    raise exception 'append_events: the settings or the topic deed.run_events cannot be read, or it is not deed''s own'
      using errcode = 'DDCON', hint = 'Run deed migrate up as the owner.';
  end if;
  if v_text <> '' or v_bound then
    v_tenant := deed.current_tenant();
    if v_tenant is null and v_text <> '' then
      raise exception 'append_events: app.current_tenant_id is not a UUID, or is a tenant that this login is not bound to' using errcode = 'DDTEN';
    elsif v_tenant is null and (exists (select from deed.tenant_logins l where l.login = session_user) or exists (select from deed.shut_logins l where l.login = session_user)) then
      raise exception 'append_events: this login is bound to tenants, and has set none' using errcode = 'DDTEN';
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
  v_now := clock_timestamp(); -- after the locks: what is persisted later in a run has no earlier time
  if coalesce(cardinality(v_ids), 0) < v_count then
    if (select count(distinct u) from unnest(p_runs) u) <> coalesce(cardinality(v_ids), 0) then
      raise exception 'append_events: there is no run %', (select u from unnest(p_runs) u where (u = any (v_ids)) is not true limit 1) using errcode = 'DDNFD';
    end if;
  end if;
  if v_tenant <> any (v_tenants) then
    raise exception 'append_events: a run is of another tenant than the transaction has set' using errcode = 'DDTEN';
  end if;
  if current_setting('transaction_isolation') <> 'read committed'
    and pg_sequence_last_value('deed.list_seq') is distinct from v_settled
  then
    lock table deed.topics in row exclusive mode; -- see deed.publish_many
    perform deed.check_lists(array['deed.run_events']);
    perform deed.check_tenants(v_tenants);
  end if;
  if v_removed then
    perform from deed.tenant_removals r where r.tenant_id = any (v_tenants);
    if found then
      raise exception 'append_events: the tenant of a run was removed' using errcode = 'DDCON';
    end if;
  end if;

  v_started := array_fill(null::int, array[cardinality(v_ids)]);
  if v_count > 1 then
    select array_agg(w.i order by w.n), array_agg(w.first_n order by w.n), array_agg(w.start_n order by w.n), array_agg(w.ended order by w.n)
    into e_i, e_first, e_start, e_ended
    from (
      select w.n, w.i,
        min(w.n) over (partition by w.i, w.subject, w.attempt, w.type) as first_n,
        min(w.n) filter (where w.type in ('StepStarted', 'StepCompleted', 'StepFailed')) over (partition by w.i, w.subject, w.attempt) as start_n,
        max(w.attempt) filter (where w.type in ('StepCompleted', 'StepFailed', 'StepSkipped'))
          over (partition by w.i, w.subject order by w.n rows between unbounded preceding and 1 preceding) as ended
      from (
        select n, dense_rank() over (order by p_runs[n])::int as i, p_types[n] collate "C" as type, p_attempts[n] as attempt,
          case
            when p_types[n] in ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected') then p_signals[n]::text
            else coalesce(p_steps[n], 'RUN')
          end collate "C" as subject
        from generate_series(1, v_count) n
      ) w
    ) w;
  end if;

  -- Into arrays: a loop over a query has its parameters copied, and each look into an array of
  -- texts then walks along it. Each look is in the order of the index that it is meant for: by
  -- costs alone a table that nobody has analysed has its rows found by the run, all of them.
  select array_agg(q.key), array_agg(q.start_key), array_agg(q.old_seq), array_agg(q.differs), array_agg(q.start_seq), array_agg(q.ended), array(
      select coalesce((select l.run_seq from deed.run_log l where l.run_id = v_ids[i] order by l.run_seq desc limit 1), 0)
      from generate_series(1, cardinality(v_ids)) i
    )
  into e_key, e_startkey, e_old, e_differs, e_oldstart, e_oldended, v_last
  from (
    select e.key, e.start_key, k.run_seq as old_seq, k.differs, s.run_seq as start_seq, (
        select l.logical_attempt
        from deed.run_log l
        where l.run_id = p_runs[e.n] and l.step_id = p_steps[e.n] and l.logical_attempt >= p_attempts[e.n] - 1
          and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
        order by l.logical_attempt desc
        limit 1
      ) as ended
    from (
      select n, deed.event_key(p_runs[n], g.subject, p_attempts[n], g.type, v_versions[g.i]) as key,
        case when g.type in ('StepCompleted', 'StepFailed') then deed.event_key(p_runs[n], g.subject, p_attempts[n], 'StepStarted', v_versions[g.i]) end as start_key
      from (
        select n, e_i[n] as i, p_types[n] as type, case
            when p_types[n] in ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected') then p_signals[n]::text
            else coalesce(p_steps[n], 'RUN')
          end as subject
        from generate_series(1, v_count) n
        offset 0
      ) g
      offset 0 -- or each look computes the key
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
      where e.start_key is not null and l.run_id = p_runs[e.n] and l.idempotency_key >= e.start_key and l.idempotency_key <= e.start_key
      order by l.idempotency_key
      limit 1
    ) s on true
    order by e.n
  ) q;

  for n in 1..v_count loop
    v_i := e_i[n];
    v_type := p_types[n];
    ordinal := n;
    repeated := true;
    if e_old[n] is not null or e_first[n] < n then
      run_seq := coalesce(e_old[n], v_seqs[e_first[n]]);
      if coalesce(e_differs[n], p_data[n] is distinct from p_data[e_first[n]]) then
        v_differs := v_differs || v_i;
      end if;
      v_starts[n] := case when v_type = 'StepStarted' then run_seq else e_oldstart[n] end;
    elsif v_type = 'StepStarted' and e_start[n] < n then
      run_seq := v_starts[e_start[n]]; -- which its end has brought
    else
      repeated := false;
      v_edge := array_position(v_edges, v_type || ' ' || v_statuses[v_i]);
      if v_edge is null then
        select t.to_status into v_lead from deed.run_transitions t where t.event_type = v_type and t.from_status = v_statuses[v_i];
        v_edges := v_edges || (v_type || ' ' || v_statuses[v_i]);
        v_leads := v_leads || v_lead;
        v_edge := cardinality(v_edges);
      end if;
      if v_leads[v_edge] is null then
        raise exception 'append_events: event %: run % is %, and takes no %', n, p_runs[n], v_statuses[v_i], v_type
          using errcode = 'DDCON', hint = 'deed.run_transitions lists what is allowed.';
      elsif v_leads[v_edge] <> v_statuses[v_i] then
        v_statuses[v_i] := v_leads[v_edge];
        v_changed := true;
        if v_type = 'RunStarted' then
          v_started[v_i] := n;
        end if;
      end if;
      if p_steps[n] is not null then
        v_ended := greatest(e_ended[n], e_oldended[n], 0);
        if v_ended <> p_attempts[n] - 1 then
          raise exception 'append_events: event %: attempt % of step % of run % %', n, p_attempts[n], quote_literal(p_steps[n]), p_runs[n],
            case when v_ended >= p_attempts[n] then 'has ended' else 'comes before the one before it has ended' end using errcode = 'DDCON';
        end if;
      end if;
      if e_startkey[n] is not null then
        v_starts[n] := coalesce(e_oldstart[n], v_starts[e_start[n]]);
        if v_starts[n] is null then
          v_last[v_i] := v_last[v_i] + 1;
          v_starts[n] := v_last[v_i];
          o_n := o_n || -n;
          o_i := o_i || v_i;
          o_seq := o_seq || v_last[v_i];
          o_id := o_id || deed.run_event_id(p_runs[n], v_last[v_i]);
          o_key := o_key || e_startkey[n];
        end if;
      end if;
      run_seq := v_last[v_i] + 1;
      v_last[v_i] := run_seq;
      if v_type = 'StepStarted' then
        v_starts[n] := run_seq;
      end if;
    end if;
    v_seqs[n] := run_seq;
    event_id := deed.run_event_id(p_runs[n], run_seq);
    if not repeated then
      o_n := o_n || n;
      o_i := o_i || v_i;
      o_seq := o_seq || run_seq;
      o_id := o_id || event_id;
      o_key := o_key || e_key[n];
    end if;
    return next;
  end loop;
  if o_n = '{}' and v_differs = '{}' then
    return;
  end if;

  v_rest := ',"persistedAt":' || to_json(v_now)::text || coalesce(',"adapterVersion":' || to_json(p_adapter)::text, '');
  with appended as materialized (
    select p_runs[a.n] as run_id, v_tenants[a.i] as tenant_id, a.seq, a.event_id, a.type, p_steps[a.n] as step, p_attempts[a.n] as attempt, p_engine_attempts[a.n] as engine_attempt,
      a.key, case when a.brought then v_begun[a.n] else coalesce(p_emitted_at[a.n], v_now) end as emitted_at,
      case when a.brought then '{}' else coalesce(p_data[a.n], '{}') end as data, p_signals[a.n] as signal, p_parents[a.n] as parent,
      case when a.type = 'RunStarted' then p_data[a.n] -> 'engine_run_ref' end as engine_run_ref
    from (
      select abs(o_n[o]) as n, o_i[o] as i, o_seq[o] as seq, o_id[o] as event_id, o_key[o] as key, o_n[o] < 0 as brought,
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
  select m.id, v_xid, deed.slot(v_base, m.key, m.id), v_version, m.tenant_id, v_now, 'deed.run_events', m.key, m.type, 'application/json',
    deed.event_message(m.key, m.seq, m.event_id, m.type, m.step, m.attempt, m.engine_attempt, m.idempotency_key, m.emitted_at, v_rest, m.signal, m.parent, m.engine_run_ref, m.data)
  from (
    select nextval('deed.log_seq') as id, a.run_id::text as key, a.tenant_id, a.seq, a.event_id, a.step, a.engine_attempt, a.attempt, a.type,
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
end
$$;
