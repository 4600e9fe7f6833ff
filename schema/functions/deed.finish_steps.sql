-- deed.finish_steps: record what became of steps, of any number of runs, and what follows from it:
-- the events, which steps begin now, and the end of runs. For workers.
--
-- The arrays are parallel; the first five are as deed.claim_steps gave them. p_outcomes:
--   completed  p_data has the output and artifacts
--   failed     p_data has the error: category, code, message, retryable. p_not_done says that nothing was done
--   skipped    p_data has the reason
--   waiting    it has begun, and goes on p_again seconds from now, or at p_until
--   released   it is given back, and no attempt is counted; with p_again or p_until it is due then. p_data says begun: false
--              where nothing of it was called since it was claimed: that claim was no engine's attempt
--   offered    of kind external: it is for workers in other languages (deed.claim_external). p_data has queue, input, secrets,
--              key and timeout, in seconds
-- p_started_at is when a step began, by its worker. Returns a row for each: recorded; repeated, for an end that this claim
-- has recorded before, so that who has not heard the answer may ask again (the event in the log carries the
-- claim, and so does the row of a step that stays, until another claim gives it back: given_back; of a hold that is over it is known that it was ended so); or lost, for which nothing is recorded: the claim is another's, or the run has ended.
--
-- A step that fails is tried again as its plan says, unless its error is not retryable, or its
-- attempt must not be repeated and may have been done. Else it has failed for good, or where the plan has a hold,
-- or nobody knows whether it was done (OUTCOME_UNKNOWN), or its code does not fit what is recorded (RUN_DIVERGED), it waits for a person (deed.retry_step); but
-- not for a plan that is not what was stored (PLAN_INTEGRITY_VALIDATION_FAILED): no person makes it what it was. A step all of whose
-- dependencies have ended begins; one that needs success and misses it is skipped. When all have
-- ended the run has: it has failed if a step has.
--
-- Runs are locked in the order of their ids, then the steps; so no two ends miss that they were the last
-- ones of a join. Who waits for one longer than 200 ms gets 55P03, and nothing of the call is recorded: it is asked again in
-- smaller parts, so that a run that somebody keeps locked holds up its own steps. No two parts of a statement are joined but by look-ups in an index. Raises DDARG for what
-- is wrong in itself, and then records nothing of the call.
create or replace function deed.finish_steps(
  p_runs       uuid[],
  p_places     int[],
  p_claims     bigint[],
  p_steps      text[],
  p_attempts   int[],
  p_outcomes   text[],
  p_data       jsonb[] default null,
  p_started_at timestamptz[] default null,
  p_not_done   boolean[] default null,
  p_again      float8[] default null,
  p_until      timestamptz[] default null,
  p_adapter    text default null
) returns table (ordinal int, result text)
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
  -- The runs, in the order of their ids, by number.
  v_ids      uuid[];
  v_tenants  uuid[];
  v_statuses text[];
  v_plans    text[];
  v_versions text[];
  v_engines  text[];
  v_done     bytea[];
  v_passed   bytea[];
  v_failing  bool[];
  v_moved    bool[];
  -- The steps that are still the claims': which of the call, of which run, and their rows.
  m_n        int[];
  m_i        int[];
  m_row      tid[];
  m_begun    timestamptz[];
  m_once     bool[];
  m_verdict  text[];
  m_engine   int[];
  m_now      bool[]; -- it has begun under this claim
  -- The events.
  e_runs     uuid[] := '{}';
  e_types    text[] := '{}';
  e_steps    text[] := '{}';
  e_attempts int[] := '{}';
  e_engine   int[] := '{}';
  e_at       timestamptz[] := '{}';
  e_data     jsonb[] := '{}';
  e_i        int[] := '{}';
  e_begun    timestamptz[] := '{}'; -- of ends of steps
  v_plain    bool := true; -- there is nothing but ends, each of another step
  -- Steps that have ended for good: of which run, and their places; and the rows that go.
  t_i        int[] := '{}';
  t_place    int[] := '{}';
  g_row      tid[] := '{}';
  -- Steps that stay, of which of the call: what becomes of them, and when they are due again.
  s_n        int[] := '{}';
  s_what     text[] := '{}';
  s_due      timestamptz[] := '{}';
  v_goes_on  bool := false; -- a run has steps that have not ended
  -- Steps that come after those that have ended, and those of them that begin.
  c_i        int[];
  c_place    int[];
  c_step     text[];
  c_queue    text[];
  c_once     bool[];
  c_missed   text[];
  b_i        int[] := '{}';
  b_place    int[] := '{}';
  b_step     text[] := '{}';
  b_queue    text[] := '{}';
  b_once     bool[] := '{}';
  n          int;
  v_i        int;
  v_at       int := 1;
  v_upto     int;
  v_outcome  text;
  v_code     text;
  v_error    jsonb;
  v_policy   record;
begin
  if v_count = 0 then
    return;
  elsif not (array_dims(p_runs) = v_dims and array_dims(p_places) = v_dims and array_dims(p_claims) = v_dims and array_dims(p_steps) = v_dims
    and array_dims(p_attempts) = v_dims and array_dims(p_outcomes) = v_dims and coalesce(array_dims(p_data), v_dims) = v_dims
    and coalesce(array_dims(p_started_at), v_dims) = v_dims and coalesce(array_dims(p_not_done), v_dims) = v_dims
    and coalesce(array_dims(p_again), v_dims) = v_dims and coalesce(array_dims(p_until), v_dims) = v_dims) is not false
  then
    raise exception 'finish_steps: the arrays must have one dimension, the same length, and elements from 1' using errcode = 'DDARG';
  elsif p_outcomes <@ '{completed,failed,skipped,waiting,released,offered}' is not true then
    raise exception 'finish_steps: outcomes are completed, failed, skipped, waiting, released and offered' using errcode = 'DDARG';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'finish_steps: it needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  for n in 1..v_count loop
    if p_outcomes[n] = 'failed' and (jsonb_typeof(p_data[n] -> 'error') = 'object' and p_data[n] -> 'error' ->> 'code' <> '') is not true then
      raise exception 'finish_steps: step %: one that failed has an error with a code in its data', n using errcode = 'DDARG';
    elsif p_outcomes[n] = 'offered' and (p_data[n] ->> 'queue' <> '' and p_data[n] ? 'input' and p_data[n] ->> 'key' <> '') is not true then
      raise exception 'finish_steps: step %: one that is offered has a queue, an input and a key', n using errcode = 'DDARG';
    elsif p_data[n] is not null and jsonb_typeof(p_data[n]) <> 'object' then
      raise exception 'finish_steps: step %: the data are no JSON object', n using errcode = 'DDARG';
    elsif p_outcomes[n] = 'waiting' and (p_again[n] is null) = (p_until[n] is null) then
      raise exception 'finish_steps: step %: one that waits has either the seconds or the time', n using errcode = 'DDARG';
    end if;
  end loop;

  select array_agg(q.run_id), array_agg(q.tenant_id), array_agg(q.status), array_agg(q.plan_id), array_agg(q.plan_version), array_agg(q.engine),
    array_agg(q.done), array_agg(q.passed), array_agg(q.failing), array_agg(false)
  into v_ids, v_tenants, v_statuses, v_plans, v_versions, v_engines, v_done, v_passed, v_failing, v_moved
  from (
    select r.run_id, r.tenant_id, r.status, r.plan_id, r.plan_version, r.engine, r.done, r.passed, r.failing
    from deed.runs r
    where r.run_id = any (p_runs)
    order by r.run_id
    for no key update
  ) q;
  v_now := clock_timestamp();
  select coalesce(array_agg(s.n), '{}'), array_agg(array_position(v_ids, p_runs[s.n])), array_agg(s.ctid), array_agg(s.begun_at), array_agg(s.at_most_once), array_agg(s.verdict),
    array_agg(s.engine_attempt), array_agg(s.begun_at is not null and coalesce(s.begun_claim, s.claim) = s.claim)
  into m_n, m_i, m_row, m_begun, m_once, m_verdict, m_engine, m_now
  from (
    select o.n, c.*
    from (select n from generate_series(1, v_count) n order by p_runs[n], p_places[n]) o
    cross join lateral (
      select s.ctid, s.begun_at, s.at_most_once, s.verdict, s.engine_attempt, s.claim, s.begun_claim
      from deed.run_steps s
      where s.run_id = p_runs[o.n] and s.place = p_places[o.n] and s.claim = p_claims[o.n] and s.step_id = p_steps[o.n] and s.attempt = p_attempts[o.n]
      for update
    ) c
  ) s;

  for m in 1..cardinality(m_n) loop
    n := m_n[m];
    v_outcome := p_outcomes[n];
    v_error := case when v_outcome = 'failed' then p_data[n] -> 'error' end;
    v_code := m_verdict[m];
    if v_outcome = 'released' then
      -- What must not be repeated, and has begun, is not given back unless nothing was done.
      v_code := case when v_code is null and m_once[m] and m_now[m] and p_not_done[n] is not true then 'OUTCOME_UNKNOWN' end;
    end if;
    if v_code is not null then
      v_outcome := 'failed';
      v_error := jsonb_build_object('category', 'infrastructure', 'code', v_code, 'retryable', v_code = 'TIMEOUT', 'message', case v_code
        when 'WORKER_LOST' then 'the claim was lost ten times: each time the worker died or froze before it could report'
        when 'TIMEOUT' then 'its time was over before its worker has reported'
        when 'OUTCOME_UNKNOWN' then 'it had begun when its worker was lost; nobody knows whether it was done, and it must not be done twice'
        else 'no person has decided in time' end);
    end if;
    if v_outcome in ('released', 'offered') then
      s_n := s_n || n;
      s_what := s_what || case v_outcome when 'offered' then 'offer' else 'release' end;
      s_due := s_due || coalesce(p_until[n], v_now + make_interval(secs => p_again[n]));
      continue;
    end if;
    v_plain := v_plain and v_outcome <> 'waiting' and m_row[m] is distinct from m_row[m - 1] and v_statuses[m_i[m]] in ('RUNNING', 'PAUSED');
    if v_code is distinct from 'HOLD_OVER' then
      e_i := e_i || m_i[m];
      e_begun := e_begun || case when v_outcome in ('completed', 'failed') then coalesce(p_started_at[n], m_begun[m], v_now) end;
      e_runs := e_runs || p_runs[n];
      e_types := e_types || case v_outcome when 'completed' then 'StepCompleted' when 'failed' then 'StepFailed' when 'skipped' then 'StepSkipped' else 'StepStarted' end;
      e_steps := e_steps || p_steps[n];
      e_attempts := e_attempts || p_attempts[n];
      e_engine := e_engine || m_engine[m];
      e_at := e_at || case when v_outcome = 'waiting' then coalesce(m_begun[m], p_started_at[n], v_now) end;
      e_data := e_data || (
        case when v_outcome = 'failed' then jsonb_build_object('error', v_error) when v_outcome = 'waiting' then '{}' else coalesce(p_data[n], '{}') end
        || case v_outcome
          when 'waiting' then '{}' -- a step that waits again says the same again
          when 'skipped' then jsonb_build_object('claim', p_claims[n])
          else jsonb_build_object('claim', p_claims[n], 'started_at', coalesce(p_started_at[n], m_begun[m], v_now)) end
      );
    end if;
    if v_outcome = 'waiting' then
      s_n := s_n || n;
      s_what := s_what || 'wait'::text;
      s_due := s_due || coalesce(p_until[n], v_now + make_interval(secs => p_again[n]));
      continue;
    end if;
    if v_outcome = 'failed' and v_code is distinct from 'HOLD_OVER' then
      select s.attempts, s.backoff, p.hold into v_policy
      from deed.plan_steps s
      cross join lateral (
        select o.hold from deed.plans o where o.tenant_id = s.tenant_id and o.plan_id = s.plan_id and o.plan_version = s.plan_version
      ) p
      where s.tenant_id = v_tenants[m_i[m]] and s.plan_id = v_plans[m_i[m]] and s.plan_version = v_versions[m_i[m]] and s.place = p_places[n];
      if p_attempts[n] < v_policy.attempts and v_error -> 'retryable' is distinct from 'false' and (not m_once[m] or p_not_done[n] is true) then
        s_n := s_n || n;
        s_what := s_what || 'retry'::text;
        -- In seconds: an interval of a day that is doubled thirty times is out of range before it is bounded.
        s_due := s_due || (v_now + make_interval(secs => least(extract(epoch from v_policy.backoff)::float8 * power(2, least(p_attempts[n] - 1, 30)), 86400)));
        continue;
      elsif v_error ->> 'code' in ('OUTCOME_UNKNOWN', 'RUN_DIVERGED') or (v_policy.hold is not null and v_error ->> 'code' <> 'PLAN_INTEGRITY_VALIDATION_FAILED') then
        s_n := s_n || n;
        s_what := s_what || 'hold'::text;
        s_due := s_due || coalesce(v_now + v_policy.hold, 'infinity');
        continue;
      end if;
    end if;
    v_i := m_i[m];
    g_row := g_row || m_row[m];
    t_i := t_i || v_i;
    t_place := t_place || p_places[n];
    v_moved[v_i] := true;
    v_done[v_i] := set_bit(v_done[v_i], p_places[n], 1);
    v_goes_on := v_goes_on or bit_count(v_done[v_i]) < 8 * octet_length(v_done[v_i]);
    if v_outcome = 'completed' then
      v_passed[v_i] := set_bit(v_passed[v_i], p_places[n], 1);
    elsif v_outcome = 'failed' then
      v_failing[v_i] := true;
    end if;
  end loop;

  -- What comes after them, then after what was skipped for it, and so on.
  while v_goes_on and v_at <= cardinality(t_i) loop
    v_upto := cardinality(t_i);
    select coalesce(array_agg(s.i), '{}'), array_agg(s.place), array_agg(s.step_id), array_agg(s.queue), array_agg(s.at_most_once), array_agg(s.missed)
    into c_i, c_place, c_step, c_queue, c_once, c_missed
    from (
      select x.i, d.place, d.step_id, d.queue, d.at_most_once, case when d.needs_success then (
          select o.step_id
          from unnest(d.depends) u(place)
          cross join lateral (
            select p.step_id from deed.plan_steps p
            where p.tenant_id = v_tenants[x.i] and p.plan_id = v_plans[x.i] and p.plan_version = v_versions[x.i] and p.place = u.place
          ) o
          where get_bit(v_passed[x.i], u.place) = 0
          order by u.place
          limit 1
        ) end as missed
      from (
        select distinct t_i[k] as i, a.place
        from generate_series(v_at, v_upto) k
        cross join lateral (
          select p.successors from deed.plan_steps p
          where p.tenant_id = v_tenants[t_i[k]] and p.plan_id = v_plans[t_i[k]] and p.plan_version = v_versions[t_i[k]] and p.place = t_place[k]
        ) p
        cross join unnest(p.successors) a(place)
        where bit_count(v_done[t_i[k]]) < 8 * octet_length(v_done[t_i[k]])
      ) x
      cross join lateral (
        select p.place, p.step_id, p.queue, p.at_most_once, p.needs_success, p.depends
        from deed.plan_steps p
        where p.tenant_id = v_tenants[x.i] and p.plan_id = v_plans[x.i] and p.plan_version = v_versions[x.i] and p.place = x.place
      ) d
      where not exists (select from unnest(d.depends) u(place) where get_bit(v_done[x.i], u.place) = 0)
      order by x.i, x.place
    ) s;
    v_at := v_upto + 1;
    for k in 1..cardinality(c_i) loop
      v_i := c_i[k];
      if c_missed[k] is null then
        b_i := b_i || v_i;
        b_place := b_place || c_place[k];
        b_step := b_step || c_step[k];
        b_queue := b_queue || c_queue[k];
        b_once := b_once || c_once[k];
      else
        e_i := e_i || v_i;
        e_begun := e_begun || null::timestamptz;
        e_runs := e_runs || v_ids[v_i];
        e_types := e_types || 'StepSkipped'::text;
        e_steps := e_steps || c_step[k];
        e_attempts := e_attempts || 1;
        e_engine := e_engine || null::int;
        e_at := e_at || null::timestamptz;
        e_data := e_data || jsonb_build_object('reason', format('it needs success, and step %s has not succeeded', c_missed[k]));
        t_i := t_i || v_i;
        t_place := t_place || c_place[k];
        v_done[v_i] := set_bit(v_done[v_i], c_place[k], 1);
      end if;
    end loop;
  end loop;

  for i in 1..coalesce(cardinality(v_ids), 0) loop
    -- A run that is paused ends when it goes on.
    if v_moved[i] and v_statuses[i] = 'RUNNING' and bit_count(v_done[i]) = 8 * octet_length(v_done[i]) then
      v_statuses[i] := case when v_failing[i] then 'FAILED' else 'COMPLETED' end;
      e_i := e_i || i;
      e_begun := e_begun || null::timestamptz;
      e_runs := e_runs || v_ids[i];
      e_types := e_types || case when v_failing[i] then 'RunFailed' else 'RunCompleted' end;
      e_steps := e_steps || null::text;
      e_attempts := e_attempts || 1;
      e_engine := e_engine || null::int;
      e_at := e_at || null::timestamptz;
      e_data := e_data || '{}'::jsonb;
    end if;
  end loop;

  v_plain := v_plain and e_runs <> '{}' and deed.write_ends(v_ids, v_tenants, v_versions, v_statuses, v_moved, v_done, v_passed, v_failing,
    e_i, e_types, e_steps, e_attempts, e_engine, e_begun, e_data, p_adapter);
  if not v_plain and e_runs <> '{}' then
    perform deed.write_events(e_runs, e_types, e_steps, e_attempts, e_engine, e_at, e_data, p_adapter => p_adapter);
  end if;
  if g_row <> '{}' then
    delete from deed.run_steps s where s.ctid = any (g_row); -- locked above: they stay where they are
  end if;
  if s_n <> '{}' then
    update deed.run_steps s
    set claim = null, claimed_at = null, claimed_by = null, lease_until = null, given_back = s.claim,
      ready = s_due[k] is null, process_after = coalesce(s_due[k], s.process_after),
      parked = case s_what[k] when 'wait' then true when 'release' then s.parked else false end,
      begun_at = case s_what[k] when 'wait' then coalesce(s.begun_at, p_started_at[s_n[k]], v_now) when 'release' then case when s.parked then s.begun_at end end,
      begun_claim = case s_what[k] when 'wait' then s.claim when 'release' then case when s.parked then coalesce(s.begun_claim, s.claim) end end,
      attempt = s.attempt + case s_what[k] when 'retry' then 1 else 0 end,
      -- To offer it was no attempt, nor was a claim of which nothing was called; and what waits goes on with the attempt in which it began to.
      engine_attempt = case
        when s_what[k] = 'retry' then 0
        when s_what[k] in ('offer', 'wait') or s_what[k] = 'release' and p_data[s_n[k]] -> 'begun' = 'false' then s.engine_attempt - 1
        else s.engine_attempt end,
      lost_claims = case when s_what[k] in ('release', 'offer') then s.lost_claims else 0 end,
      deadline = null,
      offer = case s_what[k] when 'offer' then p_data[s_n[k]] when 'release' then s.offer end,
      key_n = case when s_what[k] in ('retry', 'hold') and p_not_done[s_n[k]] is true then s.attempt + 1 else s.key_n end,
      verdict = case s_what[k] when 'hold' then 'HOLD_OVER' when 'release' then s.verdict end,
      queue = case when s_what[k] = 'offer' then 'external:' || (p_data[s_n[k]] ->> 'queue') when s_what[k] = 'hold' or s.offer is not null then 'deed' else s.queue end
    from generate_series(1, cardinality(s_n)) k
    where s.run_id = p_runs[s_n[k]] and s.place = p_places[s_n[k]];
  end if;
  if b_i <> '{}' then
    insert into deed.run_steps (run_id, tenant_id, process_after, place, ready, at_most_once, engine, queue, step_id)
    select v_ids[b_i[k]], v_tenants[b_i[k]], v_now, b_place[k], true, b_once[k], v_engines[b_i[k]], b_queue[k], b_step[k]
    from generate_series(1, cardinality(b_i)) k;
  end if;
  if true = any (v_moved) and not v_plain then
    update deed.runs r
    set done = v_done[i], passed = v_passed[i], failing = v_failing[i]
    from generate_series(1, cardinality(v_ids)) i
    where r.run_id = v_ids[i] and v_moved[i];
  end if;

  if cardinality(m_n) = v_count then
    return query select n, 'recorded' from generate_series(1, v_count) n;
    return;
  end if;
  return query
  select n, case
      when array_position(m_n, n) is not null then 'recorded'
      when exists (
        select from deed.run_log l
        where l.run_id = p_runs[n] and l.run_id between v_ids[1] and v_ids[cardinality(v_ids)] and l.step_id = p_steps[n] and l.logical_attempt = p_attempts[n] and l.event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')
          and (l.event_data ->> 'claim' = p_claims[n]::text or l.event_type = 'StepFailed' and p_data[n] -> 'error' ->> 'code' = 'HOLD_OVER'
            and get_bit(v_done[array_position(v_ids, p_runs[n])], p_places[n]) = 1)
      ) or exists (
        select from deed.run_steps s
        where s.run_id = p_runs[n] and s.place = p_places[n] and s.given_back = p_claims[n] and s.step_id = p_steps[n] and s.attempt = p_attempts[n]
      ) then 'repeated'
      else 'lost' end
  from generate_series(1, v_count) n;
end
$$;
