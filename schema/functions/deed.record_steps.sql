-- deed.record_steps: record what became of inner steps, those that the code of a step remembers by name: of any number
-- of steps and runs. For workers.
--
-- The arrays are parallel. The first three are the outer step's, as deed.claim_steps gave them: they are the fence, and who
-- has lost that claim records nothing. p_steps are the inner steps' whole names, STEP/NAME, with the logical attempt of
-- each. p_outcomes are completed, failed and skipped, with p_data as deed.finish_steps has them, start and end in one go;
-- and waiting: the inner step sleeps for p_again seconds from now, and until is when it is over. A failure's data may say
-- not_done. Returns a row for each: recorded; repeated, for what this claim has recorded before, so that who has not heard the
-- answer may ask again; or lost. The event's data say of which logical attempt of the outer step it is (of).
--
-- Runs are locked in the order of their ids, then the outer steps' rows until the transaction ends: nobody claims one meanwhile. One whose
-- lease is half over is renewed, for what renews leases passes over rows that are locked; and who gets on has lost no
-- claim in a row (O17). Who waits for a run longer than 200 ms gets 55P03, as deed.finish_steps has it. Raises DDARG, and
-- DDCON for an attempt that comes before the one before it has ended.
create or replace function deed.record_steps(
  p_runs       uuid[],
  p_places     int[],
  p_claims     bigint[],
  p_steps      text[],
  p_attempts   int[],
  p_outcomes   text[],
  p_data       jsonb[] default null,
  p_started_at timestamptz[] default null,
  p_again      float8[] default null,
  p_lease      interval default interval '30 seconds',
  p_adapter    text default null
) returns table (ordinal int, result text, until timestamptz)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set timezone = 'UTC'
set lock_timeout = '200ms'
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
  -- The runs, and the first and the last: of their log no other partitions are opened than those between them.
  v_ids      uuid[];
  v_tenants  uuid[];
  v_versions text[];
  v_statuses text[];
  v_low      uuid;
  v_high     uuid;
  -- The inner steps whose outer one is still the claim's: which of the call, and the outer one's row.
  m_n        int[];
  m_row      tid[];
  m_step     text[];
  m_of       int[];
  m_engine   int[];
  m_stale    bool[];
  m_old      text[];
  m_until    timestamptz[];
  v_results  text[] := array_fill('lost'::text, array[v_count]);
  v_untils   timestamptz[] := array_fill(null::timestamptz, array[v_count]);
  -- The events.
  e_n        int[] := '{}';
  e_types    text[] := '{}';
  e_engine   int[] := '{}';
  e_at       timestamptz[] := '{}';
  e_data     jsonb[] := '{}';
  e_of       int[] := '{}'; -- which of the runs
  e_begun    timestamptz[] := '{}'; -- of ends
  v_plain    bool := true; -- there is nothing but ends, each of another step
  n          int;
  v_seq      bigint;
  v_rows     tid[] := '{}';
begin
  if v_count = 0 then
    return;
  elsif not (array_dims(p_runs) = v_dims and array_dims(p_places) = v_dims and array_dims(p_claims) = v_dims and array_dims(p_steps) = v_dims
    and array_dims(p_attempts) = v_dims and array_dims(p_outcomes) = v_dims and coalesce(array_dims(p_data), v_dims) = v_dims
    and coalesce(array_dims(p_started_at), v_dims) = v_dims and coalesce(array_dims(p_again), v_dims) = v_dims) is not false
  then
    raise exception 'record_steps: the arrays must have one dimension, the same length, and elements from 1' using errcode = 'DDARG';
  elsif p_outcomes <@ '{completed,failed,skipped,waiting}' is not true then
    raise exception 'record_steps: outcomes are completed, failed, skipped and waiting' using errcode = 'DDARG';
  elsif (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'record_steps: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'record_steps: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  for n in 1..v_count loop
    if p_outcomes[n] = 'failed' and (jsonb_typeof(p_data[n] -> 'error') = 'object' and p_data[n] -> 'error' ->> 'code' <> '') is not true then
      raise exception 'record_steps: step %: one that failed has an error with a code in its data', n using errcode = 'DDARG';
    elsif p_data[n] is not null and jsonb_typeof(p_data[n]) <> 'object' then
      raise exception 'record_steps: step %: the data are no JSON object', n using errcode = 'DDARG';
    elsif p_outcomes[n] = 'waiting' and (p_again[n] between 0 and 315576000) is not true then
      raise exception 'record_steps: step %: one that waits has the seconds, of ten years at most', n using errcode = 'DDARG';
    end if;
  end loop;
  -- Its code goes on after this, and what it does then must not be forgotten before it.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;

  select array_agg(q.run_id), array_agg(q.tenant_id), array_agg(q.plan_version), array_agg(q.status) into v_ids, v_tenants, v_versions, v_statuses
  from (
    select r.run_id, r.tenant_id, r.plan_version, r.status from deed.runs r where r.run_id = any (p_runs) order by r.run_id for no key update
  ) q;
  v_low := v_ids[1];
  v_high := v_ids[cardinality(v_ids)];
  v_now := clock_timestamp();
  select coalesce(array_agg(s.n), '{}'), array_agg(s.ctid), array_agg(s.step_id), array_agg(s.attempt), array_agg(s.engine_attempt),
    array_agg(s.lost_claims > 0 or s.lease_until < v_now + p_lease / 2), array_agg(s.old), array_agg(s.until)
  into m_n, m_row, m_step, m_of, m_engine, m_stale, m_old, m_until
  from (
    select c.*, (
        select coalesce(l.event_data ->> 'claim', '')
        from deed.run_log l
        where l.run_id = p_runs[c.n] and l.run_id between v_low and v_high and l.step_id = p_steps[c.n] and l.logical_attempt = p_attempts[c.n] and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
      ) as old, case when p_outcomes[c.n] = 'waiting' then (
        select (l.event_data ->> 'until')::timestamptz
        from deed.runs r
        cross join lateral (select deed.event_key(p_runs[c.n], p_steps[c.n], p_attempts[c.n], 'StepStarted', r.plan_version) as key offset 0) k
        cross join lateral (
          select o.event_data from deed.run_log o
          where o.run_id = p_runs[c.n] and o.run_id between v_low and v_high and o.idempotency_key >= k.key and o.idempotency_key <= k.key
          order by o.idempotency_key limit 1
        ) l
        where r.run_id = p_runs[c.n]
      ) end as until
    from (
      select o.n, s.*
      from (select n from generate_series(1, v_count) n order by p_runs[n], p_places[n]) o
      cross join lateral (
        select s.ctid, s.step_id, s.attempt, s.engine_attempt, s.lost_claims, s.lease_until
        from deed.run_steps s
        where s.run_id = p_runs[o.n] and s.place = p_places[o.n] and s.claim = p_claims[o.n]
        for no key update
      ) s
      offset 0 -- what the log says is read once the rows are locked
    ) c
  ) s;

  for m in 1..cardinality(m_n) loop
    n := m_n[m];
    if starts_with(p_steps[n], m_step[m] || '/') is not true then
      raise exception 'record_steps: step %: % is no inner step of %', n, coalesce(quote_literal(left(p_steps[n], 200)), 'null'), quote_literal(m_step[m]) using errcode = 'DDARG';
    end if;
    if m_stale[m] then
      v_rows := v_rows || m_row[m];
    end if;
    if m_old[m] is not null or m_until[m] is not null then
      v_results[n] := case when m_old[m] is null or m_old[m] = p_claims[n]::text then 'repeated' else 'lost' end;
      v_untils[n] := m_until[m];
      continue;
    end if;
    v_results[n] := 'recorded';
    e_n := e_n || n;
    e_types := e_types || case p_outcomes[n] when 'completed' then 'StepCompleted' when 'failed' then 'StepFailed' when 'skipped' then 'StepSkipped' else 'StepStarted' end;
    e_engine := e_engine || m_engine[m];
    e_at := e_at || case when p_outcomes[n] = 'waiting' then coalesce(p_started_at[n], v_now) end;
    e_of := e_of || array_position(v_ids, p_runs[n]);
    e_begun := e_begun || case when p_outcomes[n] in ('completed', 'failed') then coalesce(p_started_at[n], v_now) end;
    v_plain := v_plain and coalesce(p_outcomes[n] <> 'waiting' and length(p_steps[n]) <= 200 and p_attempts[n] >= 1
      and v_statuses[e_of[cardinality(e_of)]] in ('RUNNING', 'PAUSED'), false);
    if p_outcomes[n] = 'waiting' then
      v_untils[n] := v_now + make_interval(secs => p_again[n]);
      e_data := e_data || jsonb_build_object('of', m_of[m], 'until', v_untils[n]);
    else
      e_data := e_data || (coalesce(p_data[n], '{}') || jsonb_build_object('claim', p_claims[n], 'of', m_of[m])
        || case when p_outcomes[n] = 'skipped' then '{}' else jsonb_build_object('started_at', coalesce(p_started_at[n], v_now)) end);
    end if;
  end loop;

  if cardinality(e_n) = 1 then
    n := e_n[1];
    select e.run_seq into v_seq
    from deed.write_event(p_runs[n], e_types[1], p_steps[n], p_attempts[n], e_engine[1], e_at[1], e_data[1], null, null, p_adapter) e;
  end if;
  v_plain := v_plain and v_seq is null and e_n <> '{}'
    and (cardinality(v_ids) = v_count or (select count(distinct (p_runs[u], p_steps[u])) = cardinality(e_n) from unnest(e_n) u))
    and deed.write_ends(v_ids, v_tenants, v_versions, v_statuses, array_fill(false, array[cardinality(v_ids)]), null, null, null, e_of, e_types,
      array(select p_steps[u] from unnest(e_n) with ordinality x(u, o) order by x.o), array(select p_attempts[u] from unnest(e_n) with ordinality x(u, o) order by x.o),
      e_engine, e_begun, e_data, p_adapter);
  if e_n <> '{}' and v_seq is null and not v_plain then
    perform deed.write_events(array(select p_runs[u] from unnest(e_n) with ordinality x(u, o) order by x.o), e_types,
      array(select p_steps[u] from unnest(e_n) with ordinality x(u, o) order by x.o),
      array(select p_attempts[u] from unnest(e_n) with ordinality x(u, o) order by x.o), e_engine, e_at, e_data, p_adapter => p_adapter);
  end if;
  if v_rows <> '{}' then
    -- Locked above: they stay where they are.
    update deed.run_steps s set lease_until = greatest(s.lease_until, v_now + p_lease), lost_claims = 0 where s.ctid = any (v_rows);
  end if;
  for k in 1..v_count loop
    ordinal := k;
    result := v_results[k];
    until := v_untils[k];
    return next;
  end loop;
end
$$;
