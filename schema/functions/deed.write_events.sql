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
  v_low      uuid;
  v_high     uuid;
  v_tenants  uuid[];
  v_statuses text[];
  v_versions text[];
  v_names    text[]; -- as keys of messages
  v_slots    int[];
  v_last     bigint[];
  -- Of deed.run_transitions, what was asked for: type and status, and where it leads; and the last of it.
  v_edges    text[] := '{}';
  v_leads    text[] := '{}';
  v_edge     int;
  v_asked    text;
  v_status   text;
  v_lead     text;
  -- The events given: of which run; their first one and their first start in this call, and
  -- which attempt of the step the call ends before, all empty where each is of another run;
  -- their keys, and what the log says of them; their numbers and ids, and of ends the numbers of their StepStarted.
  e_i        int[] := '{1}';
  e_first    int[] := '{}';
  e_start    int[] := '{}';
  e_ended    int[] := '{}';
  e_key      bytea[];
  e_startkey bytea[];
  e_old      bigint[]; -- negative: with other data
  e_oldstart bigint[];
  e_oldended int[];
  v_seqs     bigint[] := array_fill(null::bigint, array[v_count]);
  v_events   uuid[] := array_fill(null::uuid, array[v_count]);
  v_starts   bigint[] := array_fill(null::bigint, array[v_count]);
  v_new      int[] := '{}'; -- the events that are appended, negative for a StepStarted before its end
  v_changed  boolean := false;
  v_started  int[]; -- of each run: its RunStarted
  v_differs  int[] := '{}';
  v_type     text;
  v_i        int;
  v_rest     text; -- of messages: what all have
begin
  if v_count = 0 then
    if cardinality(p_types) > 0 or cardinality(p_steps) > 0 or cardinality(p_attempts) > 0 or cardinality(p_engine_attempts) > 0 or cardinality(p_emitted_at) > 0
      or cardinality(p_data) > 0 or cardinality(p_signals) > 0 or cardinality(p_parents) > 0
    then
      raise exception 'append_events: no run is named, and the arrays are not empty' using errcode = 'DDARG';
    end if;
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
      when not starts_with(p_types[n], 'Step') and p_steps[n] is not null then format('%s is of the run, and has no step', p_types[n])
      when starts_with(p_types[n], 'Step') and coalesce(p_steps[n], '') = '' then format('%s is of a step, which is not named', p_types[n])
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
  select array_agg(q.run_id), array_agg(q.tenant_id), array_agg(q.status), array_agg(q.plan_version), array_agg(q.name), array_agg(deed.slot(v_base, q.name, 0))
  into v_ids, v_tenants, v_statuses, v_versions, v_names, v_slots
  from (
    select r.run_id, r.tenant_id, r.status, r.plan_version, r.run_id::text as name
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
  if cardinality(v_ids) = v_count then -- none has to do with another
    if v_count > 1 and v_ids = p_runs then
      e_i := array(select generate_series(1, v_count));
    elsif v_count > 1 then
      e_i := array(select q.i from (select n, row_number() over (order by p_runs[n])::int as i from generate_series(1, v_count) n) q order by q.n);
    end if;
  else
    select array_agg(w.i), array_agg(w.first_n), array_agg(w.start_n), array_agg(w.ended)
    into e_i, e_first, e_start, e_ended
    from (
      select w.i,
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
      order by w.n
    ) w;
  end if;

  -- With the first and the last as parameters no other partitions are opened than those between them, mostly one.
  v_low := v_ids[1];
  v_high := v_ids[cardinality(v_ids)];
  -- Into arrays: a loop over a query has its parameters copied, and each look into an array of
  -- texts then walks along it. Each look is in the order of the index that it is meant for: by
  -- costs alone a table that nobody has analysed has its rows found by the run, all of them.
  select array_agg(q.key), array_agg(q.start_key), array_agg(q.old_seq), array_agg(q.start_seq), array_agg(q.ended), array(
      select coalesce((select l.run_seq from deed.run_log l where l.run_id = v_ids[i] and l.run_id between v_low and v_high order by l.run_seq desc limit 1), 0)
      from generate_series(1, cardinality(v_ids)) i
    )
  into e_key, e_startkey, e_old, e_oldstart, e_oldended, v_last
  from (
    select e.key, e.start_key, (
        select case
            when case when l.redacted_sha256 is null then l.event_data <> coalesce(p_data[e.n], '{}')
                else l.redacted_sha256 <> sha256(convert_to(coalesce(p_data[e.n], '{}')::text, 'UTF8')) end
              then -l.run_seq
            else l.run_seq
          end
        from deed.run_log l
        where l.run_id = p_runs[e.n] and l.run_id between v_low and v_high and l.idempotency_key >= e.key and l.idempotency_key <= e.key
        order by l.idempotency_key
        limit 1
      ) as old_seq,
      case when e.start_key is not null then (
        select l.run_seq
        from deed.run_log l
        where l.run_id = p_runs[e.n] and l.run_id between v_low and v_high and l.idempotency_key >= e.start_key and l.idempotency_key <= e.start_key
        order by l.idempotency_key
        limit 1
      ) end as start_seq,
      case when p_steps[e.n] is not null then (
        select l.logical_attempt
        from deed.run_log l
        where l.run_id = p_runs[e.n] and l.run_id between v_low and v_high and l.step_id = p_steps[e.n] and l.logical_attempt >= p_attempts[e.n] - 1
          and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
        order by l.logical_attempt desc
        limit 1
      ) end as ended
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
  ) q;

  for n in 1..v_count loop
    v_i := e_i[n];
    v_type := p_types[n];
    ordinal := n;
    repeated := coalesce(e_old[n] is not null or e_first[n] < n or (v_type = 'StepStarted' and e_start[n] < n), false);
    if not repeated then
      if (v_asked = v_type and v_status = v_statuses[v_i] and v_lead = v_status and greatest(e_ended[n], e_oldended[n], 0) = p_attempts[n] - 1) is not true then
        if (v_asked = v_type and v_status = v_statuses[v_i]) is not true then
          v_asked := v_type;
          v_status := v_statuses[v_i];
          v_edge := array_position(v_edges, v_asked || ' ' || v_status);
          if v_edge is null then
            v_edges := v_edges || (v_asked || ' ' || v_status);
            v_leads := v_leads || (select t.to_status from deed.run_transitions t where t.event_type = v_asked and t.from_status = v_status);
            v_edge := cardinality(v_edges);
          end if;
          v_lead := v_leads[v_edge];
        end if;
        if v_lead is null then
          raise exception 'append_events: event %: run % is %, and takes no %', n, p_runs[n], v_status, v_type
            using errcode = 'DDCON', hint = 'deed.run_transitions lists what is allowed.';
        elsif v_lead <> v_status then
          v_statuses[v_i] := v_lead;
          v_changed := true;
          if v_type = 'RunStarted' then
            v_started[v_i] := n;
          end if;
        end if;
        if p_steps[n] is not null and greatest(e_ended[n], e_oldended[n], 0) <> p_attempts[n] - 1 then
          raise exception 'append_events: event %: attempt % of step % of run % %', n, p_attempts[n], quote_literal(p_steps[n]), p_runs[n],
            case when greatest(e_ended[n], e_oldended[n], 0) >= p_attempts[n] then 'has ended' else 'comes before the one before it has ended' end using errcode = 'DDCON';
        end if;
      end if;
      if e_startkey[n] is not null then
        v_starts[n] := coalesce(e_oldstart[n], v_starts[e_start[n]], case when p_types[e_start[n]] = 'StepStarted' then v_seqs[e_start[n]] end);
        if v_starts[n] is null then
          v_last[v_i] := v_last[v_i] + 1;
          v_starts[n] := v_last[v_i];
          v_new := v_new || -n;
        end if;
      end if;
      run_seq := v_last[v_i] + 1;
      v_last[v_i] := run_seq;
      v_new := v_new || n;
    elsif e_old[n] is not null or e_first[n] < n then
      run_seq := coalesce(abs(e_old[n]), v_seqs[e_first[n]]);
      v_starts[n] := e_oldstart[n];
      if coalesce(e_old[n] < 0, p_data[n] is distinct from p_data[e_first[n]]) then
        v_differs := v_differs || v_i;
      end if;
    else
      run_seq := v_starts[e_start[n]]; -- which its end has brought
    end if;
    event_id := deed.run_event_id(p_runs[n], run_seq);
    v_seqs[n] := run_seq;
    v_events[n] := event_id;
    return next;
  end loop;
  if v_new = '{}' and v_differs = '{}' then
    return;
  end if;

  v_rest := ',"persistedAt":' || to_json(v_now)::text || coalesce(',"adapterVersion":' || to_json(p_adapter)::text, '');
  with appended as materialized (
    select p_runs[a.n] as run_id, v_names[a.i] as name, v_slots[a.i] as slot, v_tenants[a.i] as tenant_id, p_steps[a.n] as step, p_attempts[a.n] as attempt, p_engine_attempts[a.n] as engine_attempt,
      case when a.brought then v_starts[a.n] else v_seqs[a.n] end as seq,
      case when a.brought then deed.run_event_id(p_runs[a.n], v_starts[a.n]) else v_events[a.n] end as event_id,
      case when a.brought then 'StepStarted' else p_types[a.n] end as type,
      case when a.brought then e_startkey[a.n] else e_key[a.n] end as key,
      case when a.brought then v_begun[a.n] else coalesce(p_emitted_at[a.n], v_now) end as emitted_at,
      case when a.brought then '{}' else coalesce(p_data[a.n], '{}') end as data, p_signals[a.n] as signal, p_parents[a.n] as parent,
      case when p_types[a.n] = 'RunStarted' then p_data[a.n] -> 'engine_run_ref' end as engine_run_ref
    from (
      select abs(u) as n, e_i[abs(u)] as i, u < 0 as brought
      from unnest(v_new) u
      offset 0 -- or each look into an array computes them
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
  select nextval('deed.log_seq'), v_xid, a.slot, v_version, a.tenant_id, v_now, 'deed.run_events', a.name, a.type, 'application/json',
    deed.event_message(a.name, a.seq, a.event_id, a.type, a.step, a.attempt, a.engine_attempt, a.key, a.emitted_at, v_rest, a.signal, a.parent, a.engine_run_ref, a.data)
  from appended a;

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
