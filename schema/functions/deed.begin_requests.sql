-- deed.begin_requests: make and begin the runs that requests ask for, or find those that they have made (R12): what deed.start_run says
-- of one. For the functions that take requests. The arrays are parallel, of 1,000 requests at most; a tenant that is null is the one that the transaction has set.
--
-- With p_queues the first step in these of each run that begins is leased to p_worker as it is written, of p_limit runs at most: what deed.start_and_claim says.
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
  p_tenants       uuid[],
  p_queues        text[] default null,
  p_claim         bigint default null,
  p_worker        text default null,
  p_limit         int default 0,
  p_lease         interval default null
) returns table (
  ordinal int, run_id uuid, created boolean, status text, waits boolean,
  place int, claim bigint, tenant_id uuid, step_id text, at_most_once bool, plan_id text, plan_version text, plan_sha256 bytea, input jsonb
)
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
  v_count   int := coalesce(cardinality(p_plan_ids), 0);
  v_dims    text := '[1:' || v_count || ']';
  v_tenants uuid[] := '{}';
  v_unnamed int[] := '{}';
  v_found   text[];
  v_sha256s bytea[] := array_fill(null::bytea, array[v_count]);
  v_bits    bytea[] := array_fill(null::bytea, array[v_count]); -- none, where the plan wants a person's approval
  v_steps   jsonb[] := array_fill(null::jsonb, array[v_count]);
  v_firsts  int[] := array_fill(0, array[v_count]); -- how many of a plan's first steps are in the queues
  v_places  int[] := array_fill(null::int, array[v_count]); -- of these the first one
  v_names   text[] := array_fill(null::text, array[v_count]);
  v_onces   bool[] := array_fill(null::bool, array[v_count]);
  v_claimed bool[] := array_fill(false, array[v_count]);
  v_now     timestamptz;
  v_plan    record;
  v_begun   timestamptz[];
  v_ids     uuid[];
  v_created bool[];
  v_new     int[];
  v_begin   uuid[];
  v_last    int;
  n         int;
begin
  if v_count = 0 then
    return;
  elsif v_count > 1000 then
    raise exception 'start_requests: % requests at once; at most 1000 are possible', v_count using errcode = 'DDARG';
  elsif (array_dims(p_plan_ids) = v_dims and array_dims(p_plan_versions) = v_dims and array_dims(p_request_ids) = v_dims and array_dims(p_inputs) = v_dims
    and array_dims(p_projects) = v_dims and array_dims(p_environments) = v_dims and array_dims(p_originals) = v_dims and array_dims(p_parents) = v_dims
    and array_dims(p_parent_steps) = v_dims and array_dims(p_tenants) = v_dims) is not true
  then
    raise exception 'start_requests: the arrays must have one dimension, the same length, and elements from 1' using errcode = 'DDARG';
  end if;
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
          ) as steps, f.*
        into v_plan
        from deed.plans p
        cross join lateral (
          select count(*)::int as firsts, (array_agg(s.place order by s.place))[1] as place, (array_agg(s.step_id order by s.place))[1] as step_id,
            (array_agg(s.at_most_once order by s.place))[1] as at_most_once
          from deed.plan_steps s
          where s.tenant_id = v_tenants[n] and s.plan_id = p_plan_ids[n] and s.plan_version = p_plan_versions[n] and s.depends = '{}' and s.queue = any (p_queues) and p_queues is not null
        ) f
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
    v_firsts[n] := v_plan.firsts;
    v_places[n] := v_plan.place;
    v_names[n] := v_plan.step_id;
    v_onces[n] := v_plan.at_most_once;
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
    if p_limit > 0 then
      foreach n in array v_new loop
        exit when p_limit = 0;
        v_claimed[n] := v_firsts[n] > 0;
        p_limit := p_limit - v_claimed[n]::int;
      end loop;
    end if;
    v_now := clock_timestamp(); -- to make them may have taken a while
    insert into deed.run_steps (run_id, tenant_id, process_after, place, ready, at_most_once, engine, queue, step_id, claim, claimed_at, claimed_by, lease_until, engine_attempt)
    select v_ids[s.n], v_tenants[s.n], v_begun[s.n], s.place, true, s.at_most_once, 'local', s.queue, s.step_id,
      case when s.claimed then p_claim end, case when s.claimed then v_now end, case when s.claimed then p_worker end, case when s.claimed then v_now + p_lease end, s.claimed::int
    from (
      select u.n, p.place, p.at_most_once, p.queue, p.step_id, v_claimed[u.n] and p.place = v_places[u.n] as claimed
      from unnest(v_new) u(n)
      cross join lateral (
        select o.place, o.at_most_once, o.queue, o.step_id
        from deed.plan_steps o
        where o.tenant_id = v_tenants[u.n] and o.plan_id = p_plan_ids[u.n] and o.plan_version = p_plan_versions[u.n] and o.depends = '{}'
        offset 0
      ) p
      offset 0 -- each is looked up once
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
  return query
  select k, v_ids[k], v_created[k], case when v_begun[k] is null then (select r.status from deed.runs r where r.run_id = v_ids[k]) else 'RUNNING' end,
    not v_created[k] or (v_begun[k] is not null and v_firsts[k] > v_claimed[k]::int),
    c.place, c.claim, c.tenant_id, c.step_id, c.at_most_once, c.plan_id, c.plan_version, c.plan_sha256, c.input
  from generate_series(1, v_count) k
  left join lateral (
    select v_places[k] as place, p_claim as claim, v_tenants[k] as tenant_id, v_names[k] as step_id, v_onces[k] as at_most_once, p_plan_ids[k] as plan_id, p_plan_versions[k] as plan_version,
      v_sha256s[k] as plan_sha256, p_inputs[k] as input
    where v_claimed[k]
  ) c on true;
end
$$;
