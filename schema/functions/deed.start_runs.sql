-- deed.start_runs: begin runs whose plan is stored: RunApproved, unless the plan wants a
-- person's (deed.approve_run), RunStarted, and the first steps are ready. Returns each run and
-- where it is now; one that has begun, or that waits for a person, stays as it is.
--
-- The runs' rows are locked in the order of their ids: that is the lease under which a run
-- starts, so that it starts once however many ask (R12). Raises DDNFD for an unknown run or plan, DDCON
-- for a plan whose hash is not the one that the run was asked for with, and 40001 under REPEATABLE READ.
create or replace function deed.start_runs(
  p_runs    uuid[],
  p_adapter text default null
) returns table (run_id uuid, status text)
language plpgsql
security definer
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
  v_now   timestamptz;
  v_ids   uuid[] := '{}'; -- those that begin
  v_runs  uuid[] := '{}';
  v_types text[] := '{}';
  v_data  jsonb[] := '{}';
  v_found int := 0;
  v_run   record;
  v_of    text := ''; -- whose plan v_plan and v_names are: runs that begin together are mostly of one
  v_plan  record;
  v_names jsonb;
begin
  for v_run in
    select r.run_id, r.tenant_id, r.status, r.plan_id, r.plan_version, r.plan_sha256, jsonb_build_array(r.tenant_id, r.plan_id, r.plan_version)::text as of
    from deed.runs r
    where r.run_id = any (p_runs)
    order by r.run_id
    for no key update
  loop
    v_found := v_found + 1;
    continue when v_run.status not in ('PENDING', 'APPROVED');
    if v_of <> v_run.of then
      select p.sha256, p.approval into v_plan
      from deed.plans p
      where p.tenant_id = v_run.tenant_id and p.plan_id = v_run.plan_id and p.plan_version = v_run.plan_version;
      v_names := (
        select jsonb_agg(s.step_id order by s.place)
        from deed.plan_steps s
        where s.tenant_id = v_run.tenant_id and s.plan_id = v_run.plan_id and s.plan_version = v_run.plan_version
      );
      v_of := v_run.of;
    end if;
    if v_plan.sha256 is null then
      raise exception 'start_runs: run %: version % of plan % is not stored', v_run.run_id, quote_literal(v_run.plan_version), quote_literal(v_run.plan_id)
        using errcode = 'DDNFD', hint = 'Store it with: deed plan put';
    elsif v_run.plan_sha256 <> v_plan.sha256 then
      raise exception 'start_runs: run % was asked for with another plan than the one that is stored', v_run.run_id using errcode = 'DDCON';
    end if;
    continue when v_run.status = 'PENDING' and v_plan.approval;
    if v_run.status = 'PENDING' then
      v_runs := v_runs || v_run.run_id;
      v_types := v_types || 'RunApproved'::text;
      v_data := v_data || '{}'::jsonb;
    end if;
    v_ids := v_ids || v_run.run_id;
    v_runs := v_runs || v_run.run_id;
    v_types := v_types || 'RunStarted'::text;
    v_data := v_data || case when octet_length(v_names::text) <= 60000 then jsonb_build_object('steps', v_names) else '{}' end; -- an event's data are bounded
  end loop;
  if v_ids <> '{}' then
    perform deed.write_events(v_runs, v_types, array_fill(null::text, array[cardinality(v_runs)]), array_fill(1, array[cardinality(v_runs)]), p_data => v_data, p_adapter => p_adapter);
    v_now := clock_timestamp();
    update deed.runs r
    set done = b.bits, passed = b.bits
    from unnest(v_ids) u(run_id)
    cross join lateral (select o.tenant_id, o.plan_id, o.plan_version from deed.runs o where o.run_id = u.run_id) o
    cross join lateral (
      select deed.first_bits(p.steps) as bits
      from deed.plans p
      where p.tenant_id = o.tenant_id and p.plan_id = o.plan_id and p.plan_version = o.plan_version
    ) b
    where r.run_id = u.run_id;
    insert into deed.run_steps (run_id, tenant_id, process_after, place, ready, at_most_once, engine, queue, step_id)
    select r.run_id, r.tenant_id, v_now, s.place, true, s.at_most_once, r.engine, s.queue, s.step_id
    from unnest(v_ids) u(run_id)
    cross join lateral (select o.run_id, o.tenant_id, o.plan_id, o.plan_version, o.engine from deed.runs o where o.run_id = u.run_id offset 0) r -- or all of the tenant's are walked through
    cross join lateral (
      select p.place, p.at_most_once, p.queue, p.step_id
      from deed.plan_steps p
      where p.tenant_id = r.tenant_id and p.plan_id = r.plan_id and p.plan_version = r.plan_version and p.depends = '{}'
      offset 0
    ) s;
  end if;
  return query
  select r.run_id, r.status from unnest(p_runs) u(run_id) cross join lateral (select o.run_id, o.status from deed.runs o where o.run_id = u.run_id) r;
  if (select count(distinct u) from unnest(p_runs) u) > v_found then
    raise exception 'start_runs: there is no run %', (select u from unnest(p_runs) u where not exists (select from deed.runs r where r.run_id = u) limit 1) using errcode = 'DDNFD';
  end if;
end
$$;
