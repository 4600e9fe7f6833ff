-- deed.announce_steps: append StepStarted of steps that have run for a while, with the times when they
-- began. Of a short step start and end are told together (deed.finish_steps). For workers.
--
-- With p_attempts: of those whose logical attempt that still is, and which has not been told of, whoever has the step by now (R14: a
-- journal that is replayed may be of a worker that has died). Without: those whose claim is still the caller's. Of
-- all others nothing is appended: their ends have brought their starts, or will. Returns which of the call are to be told again, as somebody has
-- locked their runs: nobody waits for them.
create or replace function deed.announce_steps(
  p_runs            uuid[],
  p_places          int[],
  p_claims          bigint[],
  p_started_at      timestamptz[],
  p_adapter         text default null,
  p_attempts        int[] default null,
  p_engine_attempts int[] default null
) returns setof int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_mine     uuid[];
  v_runs     uuid[];
  v_steps    text[];
  v_attempts int[];
  v_engine   int[];
  v_at       timestamptz[];
begin
  -- With the runs' rows no end, and no retry, comes in between.
  select coalesce(array_agg(locked.run_id), '{}') into v_mine
  from (
    select r.run_id from deed.runs r
    where r.run_id = any (p_runs) and r.status in ('RUNNING', 'PAUSED')
    order by r.run_id
    for no key update skip locked
  ) locked;
  select array_agg(s.run_id), array_agg(s.step_id), array_agg(s.attempt), array_agg(s.engine_attempt), array_agg(s.at)
  into v_runs, v_steps, v_attempts, v_engine, v_at
  from generate_series(1, cardinality(p_runs)) n
  cross join lateral (
    select o.run_id, o.step_id, o.attempt, coalesce(p_engine_attempts[n], o.engine_attempt) as engine_attempt, p_started_at[n] as at
    from deed.run_steps o
    where o.run_id = p_runs[n] and o.place = p_places[n] and case when p_attempts is null then o.claim = p_claims[n] else o.attempt = p_attempts[n] end
  ) s
  where p_runs[n] = any (v_mine);
  if v_runs is not null then
    perform deed.write_events(v_runs, array_fill('StepStarted'::text, array[cardinality(v_runs)]), v_steps, v_attempts, v_engine, v_at, p_adapter => p_adapter);
  end if;
  return query
  select n
  from generate_series(1, cardinality(p_runs)) n
  cross join lateral (select from deed.runs r where r.run_id = p_runs[n] and r.status in ('RUNNING', 'PAUSED')) living
  where p_runs[n] <> all (v_mine);
end
$$;
