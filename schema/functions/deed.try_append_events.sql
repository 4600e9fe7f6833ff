-- deed.try_append_events: append what steps did as deed.append_events does, and wait for nobody:
-- an event of a run that somebody else has locked is not appended, and its run_seq is null. The others are.
-- For those who append in one statement what many have brought (run.Appender): a transaction that
-- is left open holds up its own run, and no other.
--
-- What it takes, promises and raises is deed.append_events's.
create or replace function deed.try_append_events(
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
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_count int := coalesce(cardinality(p_runs), 0);
  v_dims  text := '[1:' || v_count || ']';
  v_free  uuid[];
  v_held  uuid[];
  v_of    int[];
begin
  v_free := array(
    select r.run_id from deed.runs r where r.run_id = any (p_runs) order by r.run_id for no key update skip locked
  );
  -- Those that are there and were not got: an unknown one is refused by its name.
  v_held := array(
    select r.run_id from deed.runs r where r.run_id = any (array(select u from unnest(p_runs) u where (u = any (v_free)) is not true))
  );
  -- Arrays that are not alike it refuses, whoever is held.
  if v_held = '{}' or (array_dims(p_runs) = v_dims and array_dims(p_types) = v_dims and array_dims(p_steps) = v_dims and array_dims(p_attempts) = v_dims
    and coalesce(array_dims(p_engine_attempts) = v_dims, p_engine_attempts is null) and coalesce(array_dims(p_emitted_at) = v_dims, p_emitted_at is null)
    and coalesce(array_dims(p_data) = v_dims, p_data is null) and coalesce(array_dims(p_signals) = v_dims, p_signals is null)
    and coalesce(array_dims(p_parents) = v_dims, p_parents is null)) is not true
  then
    return query
    select e.ordinal, e.run_seq, e.event_id, e.repeated
    from deed.append_events(p_runs, p_types, p_steps, p_attempts, p_engine_attempts, p_emitted_at, p_data, p_signals, p_parents, p_adapter) e;
    return;
  end if;
  v_of := array(select n from generate_series(1, v_count) n where (p_runs[n] = any (v_held)) is not true order by n);
  return query
  select v_of[e.ordinal], e.run_seq, e.event_id, e.repeated
  from (
    select array_agg(p_runs[n] order by n) as runs, array_agg(p_types[n] order by n) as types, array_agg(p_steps[n] order by n) as steps,
      array_agg(p_attempts[n] order by n) as attempts, array_agg(p_engine_attempts[n] order by n) as engine_attempts,
      array_agg(p_emitted_at[n] order by n) as emitted_at, array_agg(p_data[n] order by n) as data,
      array_agg(p_signals[n] order by n) as signals, array_agg(p_parents[n] order by n) as parents
    from unnest(v_of) n
  ) a
  cross join lateral deed.append_events(a.runs, a.types, a.steps, a.attempts, a.engine_attempts, a.emitted_at, a.data, a.signals, a.parents, p_adapter) e;
  return query
  select n, null::bigint, null::uuid, null::boolean from generate_series(1, v_count) n where p_runs[n] = any (v_held);
end
$$;
