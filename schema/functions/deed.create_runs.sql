-- deed.create_runs: make the runs that requests ask for, or find those that they have made (R12); what
-- a request is, and what is raised, is as deed.create_run has it. For the functions that take requests, which
-- have checked whose they are (deed.tenant_of_call).
--
-- p_begun has for each request whose run is to begin in the same transaction, without a person's approval, which of its plan's steps have ended
-- in the beginning: none, but for those behind the last. Such a run is RUNNING at once, since begun_at, and the caller appends its events (deed.write_beginnings).
--
-- The arrays are parallel. Requests are taken in the order of their keys, so that no two callers wait for each other; one that is
-- there twice makes one run.
create or replace function deed.create_runs(
  p_tenants       uuid[],
  p_plan_ids      text[],
  p_plan_versions text[],
  p_request_ids   text[],
  p_inputs        jsonb[],
  p_projects      text[],
  p_environments  text[],
  p_plan_sha256s  bytea[],
  p_engines       text[],
  p_originals     uuid[],
  p_parents       uuid[],
  p_parent_steps  text[],
  p_begun         bytea[]
) returns table (ordinal int, run_id uuid, created boolean, begun_at timestamptz)
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
  v_count   int := cardinality(p_tenants);
  v_now     timestamptz := clock_timestamp();
  v_begun   timestamptz[] := array_fill(null::timestamptz, array[v_count]);
  v_keys    bytea[] := '{}';
  v_hashes  bytea[] := '{}';
  v_texts   text[] := '{}';
  v_ids     uuid[] := array_fill(null::uuid, array[v_count]);
  v_created bool[] := array_fill(false, array[v_count]);
  v_open    int[]; -- those that have no run yet, in the order of their keys
  v_new     uuid[]; -- for each of them
  v_made    uuid[];
  v_time    text := lpad(to_hex(floor(extract(epoch from v_now) * 1000)::bigint), 12, '0') || '7';
  v_other   uuid;
  v_found   record;
begin
  for n in 1..v_count loop
    v_texts := v_texts || p_inputs[n]::text;
    if (length(p_plan_ids[n]) between 1 and 200 and length(p_plan_versions[n]) between 1 and 200 and length(p_request_ids[n]) between 1 and 200
      and length(p_projects[n]) between 1 and 200 and length(p_environments[n]) between 1 and 200) is not true
    then
      raise exception 'create_run: plan, plan version, request id, project and environment must have 1 to 200 characters each' using errcode = 'DDARG';
    elsif (jsonb_typeof(p_inputs[n]) = 'object') is not true then
      raise exception 'create_run: the input must be a JSON object' using errcode = 'DDARG';
    elsif octet_length(v_texts[n]) > 65536 then
      raise exception 'create_run: the input of % bytes is over the limit of 65536', octet_length(v_texts[n]) using errcode = 'DDARG';
    elsif octet_length(v_texts[n]) > 2000 and deed.is_deep(convert_to(v_texts[n], 'UTF8')) then
      raise exception 'create_run: the input has over 1000 arrays and objects in each other' using errcode = 'DDARG';
    elsif octet_length(p_plan_sha256s[n]) <> 32 then
      raise exception 'create_run: a SHA-256 has 32 bytes, and the plan''s has %', octet_length(p_plan_sha256s[n]) using errcode = 'DDARG';
    elsif (p_engines[n] = 'local' or p_engines[n] ~ '^[a-z][a-z0-9_-]{0,62}$') is not true then
      raise exception 'create_run: engine % must be a-z, then a-z 0-9 _ -', coalesce(quote_literal(left(p_engines[n], 60)), 'null') using errcode = 'DDARG';
    elsif (p_parents[n] is null) <> (p_parent_steps[n] is null) or length(p_parent_steps[n]) not between 1 and 200 then
      raise exception 'create_run: a parent is a run and one of its steps, of 1 to 200 characters' using errcode = 'DDARG';
    end if;
    if p_parents[n] is not null or p_originals[n] is not null then
      foreach v_other in array array[p_parents[n], p_originals[n]] loop
        if v_other is not null and not exists (select from deed.runs r where r.run_id = v_other and r.tenant_id = p_tenants[n]) then
          raise exception 'create_run: there is no run % to be its % run', v_other, case v_other when p_parents[n] then 'parent' else 'original' end
            using errcode = 'DDNFD';
        end if;
      end loop;
    end if;
    v_hashes := v_hashes || sha256(convert_to(v_texts[n], 'UTF8'));
    v_keys := v_keys || deed.request_key(p_tenants[n], p_projects[n], p_environments[n], p_plan_ids[n], p_plan_versions[n], p_request_ids[n]);
  end loop;

  -- Look, and then insert, or the second of two at once finds no row; repeated for those that another one has made
  -- meanwhile, or whose run went between the two. Not a join, which may read all requests in the order of their runs.
  v_open := array(select u.n::int from unnest(v_keys) with ordinality u(key, n) order by u.key);
  loop
    for v_found in
      select u.n, q.run_id, r.input_sha256
      from unnest(v_open) u(n)
      cross join lateral (select o.run_id from deed.run_requests o where o.request_key = v_keys[u.n] offset 0) q
      cross join lateral (select o.input_sha256 from deed.runs o where o.run_id = q.run_id offset 0) r
    loop
      if v_found.input_sha256 <> v_hashes[v_found.n] then
        raise exception 'create_run: request % has made run %, with another input', quote_literal(p_request_ids[v_found.n]), v_found.run_id
          using errcode = 'DDCON', hint = 'Another input is another request: give it an id of its own.';
      end if;
      v_ids[v_found.n] := v_found.run_id;
    end loop;
    v_open := array(select u.n from unnest(v_open) with ordinality u(n, o) where v_ids[u.n] is null order by u.o);
    exit when v_open = '{}';
    v_new := array(select (v_time || substr(encode(uuid_send(gen_random_uuid()), 'hex'), 14))::uuid from generate_series(1, cardinality(v_open)));
    if not exists (select from deed.run_partitions p where v_new[1] >= p.from_id and v_new[1] < p.upto_id and p.dropped_at is null) then
      raise exception 'create_run: there is no partition for the events of runs of this week'
        using errcode = 'DDCON', hint = 'Relays make them ahead: run one, or as deed_worker: select deed.keep_partitions().';
    end if;
    with made as (
      insert into deed.run_requests (request_key, run_id, tenant_id)
      select v_keys[u.n], v_new[u.o], p_tenants[u.n] from unnest(v_open) with ordinality u(n, o) order by u.o
      on conflict do nothing
      returning run_id
    )
    select coalesce(array_agg(m.run_id), '{}') into v_made from made m;
    for k in 1..cardinality(v_open) loop
      if v_new[k] = any (v_made) then
        v_ids[v_open[k]] := v_new[k];
        v_created[v_open[k]] := true;
        if p_begun[v_open[k]] is not null then
          v_begun[v_open[k]] := clock_timestamp(); -- its request may have waited for another's transaction
        end if;
      end if;
    end loop;
    insert into deed.runs (run_id, tenant_id, project, environment, plan_id, plan_version, plan_sha256, engine, status, input, input_sha256,
      original_run_id, parent_run_id, parent_step_id, created_at, started_at, done, passed)
    select v_ids[u.n], p_tenants[u.n], p_projects[u.n], p_environments[u.n], p_plan_ids[u.n], p_plan_versions[u.n], p_plan_sha256s[u.n], p_engines[u.n], case when p_begun[u.n] is null then 'PENDING' else 'RUNNING' end, p_inputs[u.n], v_hashes[u.n],
      p_originals[u.n], p_parents[u.n], p_parent_steps[u.n], v_now,
      v_begun[u.n], p_begun[u.n], p_begun[u.n]
    from unnest(v_open) u(n)
    where v_ids[u.n] is not null;
    v_open := array(select u.n from unnest(v_open) with ordinality u(n, o) where v_ids[u.n] is null order by u.o);
    exit when v_open = '{}';
  end loop;
  return query select n, v_ids[n], v_created[n], v_begun[n] from generate_series(1, v_count) n;
end
$$;
