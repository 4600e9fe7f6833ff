-- deed.refuse_engines_steps: refuse events, by DDCON, that the engine records which has their runs (deed.finish_steps): those of the steps of a plan by
-- which a run has begun (deed.start_runs), and those inside of such a step that is code (deed.record_steps). An end that
-- somebody else has appended would be in the way of the one that the engine comes to, for ever. For deed.append_events, which has appended them: with
-- the runs' rows locked none begins meanwhile. A repeat has stored nothing, and is no matter.
create or replace function deed.refuse_engines_steps(
  p_runs     uuid[],
  p_steps    text[],
  p_repeated boolean[]
) returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_found record;
begin
  select u.n, s.step_id into v_found
  from unnest(p_runs, p_steps, p_repeated) with ordinality u(run, step, repeated, n)
  cross join lateral (
    select r.tenant_id, r.plan_id, r.plan_version from deed.runs r where r.run_id = u.run and r.done is not null
  ) r
  cross join lateral ( -- no plan's step has a slash in its name
    select p.step_id, p.kind from deed.plan_steps p
    where p.tenant_id = r.tenant_id and p.plan_id = r.plan_id and p.plan_version = r.plan_version and p.step_id = split_part(u.step, '/', 1)
  ) s
  where not u.repeated and (s.step_id = u.step or s.kind = 'go')
  limit 1;
  if found then
    raise exception 'append_events: event %: what step % of run % has come to its engine records', v_found.n, quote_literal(v_found.step_id), p_runs[v_found.n]
      using errcode = 'DDCON', hint = 'A step for workers in other languages is of kind external, and ends by deed.finish_external. What is beside the steps of the plan may be appended, under names of its own.';
  end if;
end
$$;
