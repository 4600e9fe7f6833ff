-- deed.announce_steps: append StepStarted of steps that have run for a while, with the times when they
-- began, those of them whose claim is still the caller's. Of a short step start and end are
-- told together (deed.finish_steps).
create or replace function deed.announce_steps(
  p_runs       uuid[],
  p_places     int[],
  p_claims     bigint[],
  p_started_at timestamptz[],
  p_adapter    text default null
) returns void
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
  v_runs     uuid[];
  v_steps    text[];
  v_attempts int[];
  v_engine   int[];
  v_at       timestamptz[];
begin
  -- With the runs' rows no end, and no retry, comes in between.
  perform from (select r.run_id from deed.runs r where r.run_id = any (p_runs) order by r.run_id for no key update) locked;
  select array_agg(s.run_id), array_agg(s.step_id), array_agg(s.attempt), array_agg(s.engine_attempt), array_agg(s.at)
  into v_runs, v_steps, v_attempts, v_engine, v_at
  from generate_series(1, cardinality(p_runs)) n
  cross join lateral (
    select o.run_id, o.step_id, o.attempt, o.engine_attempt, p_started_at[n] as at
    from deed.run_steps o
    where o.run_id = p_runs[n] and o.place = p_places[n] and o.claim = p_claims[n]
  ) s;
  if v_runs is not null then
    perform deed.write_events(v_runs, array_fill('StepStarted'::text, array[cardinality(v_runs)]), v_steps, v_attempts, v_engine, v_at, p_adapter => p_adapter);
  end if;
end
$$;
