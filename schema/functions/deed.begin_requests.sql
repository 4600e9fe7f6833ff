-- deed.begin_requests: make and begin the runs that requests ask for, or find those that they have made (R12): what deed.start_run says
-- of one. For the functions that take requests. The arrays are parallel; a tenant that is null is the one that the transaction has set.
create or replace function deed.begin_requests(
  p_plan_ids      text[],
  p_plan_versions text[],
  p_request_ids   text[],
  p_inputs        jsonb[],
  p_projects      text[],
  p_environments  text[],
  p_originals     uuid[],
  p_parents       uuid[],
  p_parent_steps  text[],
  p_tenants       uuid[]
) returns table (ordinal int, run_id uuid, created boolean, status text)
language plpgsql
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
  v_count   int := cardinality(p_plan_ids);
  v_tenants uuid[] := '{}';
  v_unnamed int[] := '{}';
  v_found   text[];
  v_sha256s bytea[] := array_fill(null::bytea, array[v_count]);
  v_bits    bytea[] := array_fill(null::bytea, array[v_count]); -- none, where the plan wants a person's approval
  v_steps   jsonb[] := array_fill(null::jsonb, array[v_count]);
  v_plan    record;
  v_begun   timestamptz[];
  v_ids     uuid[];
  v_created bool[];
  v_new     int[];
  v_begin   uuid[];
  v_last    int;
  n         int;
begin
  for n in 1..v_count loop
    if p_plan_ids[n] is null or p_request_ids[n] is null or p_projects[n] is null or p_environments[n] is null then
      raise exception 'start_run: the % is null', case when p_plan_ids[n] is null then 'plan' when p_request_ids[n] is null then 'request id' when p_projects[n] is null then 'project' else 'environment' end
        using errcode = 'DDARG';
    end if;
    v_tenants := v_tenants || case when n > 1 and p_tenants[n] is not distinct from p_tenants[n - 1] then v_tenants[n - 1] else deed.tenant_of_call('start_run', p_tenants[n]) end;
    if p_plan_versions[n] is null then
      v_unnamed := v_unnamed || n;
    end if;
  end loop;
  if v_unnamed <> '{}' then
    if cardinality(v_unnamed) = v_count then
      v_found := deed.versions_of_requests(v_tenants, p_plan_ids, p_request_ids, p_projects, p_environments);
    else
      v_found := deed.versions_of_requests(
        array(select v_tenants[u.n] from unnest(v_unnamed) with ordinality u(n, o) order by u.o), array(select p_plan_ids[u.n] from unnest(v_unnamed) with ordinality u(n, o) order by u.o),
        array(select p_request_ids[u.n] from unnest(v_unnamed) with ordinality u(n, o) order by u.o), array(select p_projects[u.n] from unnest(v_unnamed) with ordinality u(n, o) order by u.o),
        array(select p_environments[u.n] from unnest(v_unnamed) with ordinality u(n, o) order by u.o));
    end if;
    for k in 1..cardinality(v_unnamed) loop
      n := v_unnamed[k];
      p_plan_versions[n] := v_found[k];
      if v_found[k] is null and p_plan_ids[n] <> '' then
        raise exception 'start_run: there is no plan "%"', left(p_plan_ids[n], 200)
          using errcode = 'DDNFD', hint = 'Store it with: deed plan put. A Go function is known from when a program that has it is started for the first time.';
      end if;
    end loop;
  end if;

  -- In one order, since the first one of a function stores its plan.
  for n in select k from generate_series(1, v_count) k order by v_tenants[k], p_plan_ids[k], p_plan_versions[k] loop
    if (v_tenants[n] = v_tenants[v_last] and p_plan_ids[n] = p_plan_ids[v_last] and p_plan_versions[n] = p_plan_versions[v_last]) is not true then
      for attempt in 1..2 loop
        select p.sha256, case when not p.approval then deed.first_bits(p.steps) end as bits, (
            select jsonb_agg(s.step_id order by s.place)
            from deed.plan_steps s
            where s.tenant_id = v_tenants[n] and s.plan_id = p_plan_ids[n] and s.plan_version = p_plan_versions[n]
          ) as steps
        into v_plan
        from deed.plans p
        where p.tenant_id = v_tenants[n] and p.plan_id = p_plan_ids[n] and p.plan_version = p_plan_versions[n];
        exit when found;
        perform from deed.run_functions f cross join lateral deed.put_plan(f.body, p_tenant => v_tenants[n]) p
        where attempt = 1 and f.function_id = p_plan_ids[n] and f.version::text = p_plan_versions[n];
        if not found then
          raise exception 'start_run: version % of plan % is not stored', coalesce(quote_literal(left(p_plan_versions[n], 200)), 'null'), coalesce(quote_literal(left(p_plan_ids[n], 200)), 'null')
            using errcode = 'DDNFD', hint = 'Store it with: deed plan put. A Go function is known from when a program that has it is started for the first time.';
        end if;
      end loop;
      v_last := n;
    end if;
    v_sha256s[n] := v_plan.sha256;
    v_bits[n] := v_plan.bits;
    v_steps[n] := v_plan.steps;
  end loop;
  select array_agg(c.run_id order by c.ordinal), array_agg(c.created order by c.ordinal), array_agg(c.begun_at order by c.ordinal) into v_ids, v_created, v_begun
  from deed.create_runs(v_tenants, p_plan_ids, p_plan_versions, p_request_ids, p_inputs, p_projects, p_environments, v_sha256s, array_fill('local'::text, array[v_count]),
    p_originals, p_parents, p_parent_steps, v_bits) c;

  v_new := array(select k from generate_series(1, v_count) k where v_begun[k] is not null);
  if v_new <> '{}' then
    if cardinality(v_new) = v_count then
      perform deed.write_beginnings(v_ids, v_tenants, p_plan_versions, v_steps, v_begun);
    else
      perform deed.write_beginnings(array(select v_ids[u.n] from unnest(v_new) with ordinality u(n, o) order by u.o), array(select v_tenants[u.n] from unnest(v_new) with ordinality u(n, o) order by u.o),
        array(select p_plan_versions[u.n] from unnest(v_new) with ordinality u(n, o) order by u.o), array(select v_steps[u.n] from unnest(v_new) with ordinality u(n, o) order by u.o),
        array(select v_begun[u.n] from unnest(v_new) with ordinality u(n, o) order by u.o));
    end if;
    insert into deed.run_steps (run_id, tenant_id, process_after, place, ready, at_most_once, engine, queue, step_id)
    select v_ids[u.n], v_tenants[u.n], v_begun[u.n], s.place, true, s.at_most_once, 'local', s.queue, s.step_id
    from unnest(v_new) u(n)
    cross join lateral (
      select p.place, p.at_most_once, p.queue, p.step_id
      from deed.plan_steps p
      where p.tenant_id = v_tenants[u.n] and p.plan_id = p_plan_ids[u.n] and p.plan_version = p_plan_versions[u.n] and p.depends = '{}'
      offset 0
    ) s;
  end if;
  -- One that another request of before has made may wait to begin, as where its plan wants a person: that says start_runs.
  if false = any (v_created) then
    v_begin := array(
      select distinct v_ids[k]
      from generate_series(1, v_count) k
      where not v_created[k] and (select r.status = 'PENDING' from deed.runs r where r.run_id = v_ids[k])
    );
    if v_begin <> '{}' then
      perform deed.start_runs(v_begin);
    end if;
  end if;
  return query select k, v_ids[k], v_created[k], case when v_begun[k] is null then (select r.status from deed.runs r where r.run_id = v_ids[k]) else 'RUNNING' end from generate_series(1, v_count) k;
end
$$;
