-- deed.create_run: make the run that a request asks for, or find the one that it has made
-- (R12), in the caller's transaction.
--
-- The request is p_request_id, for the tenant, the project, the environment, the plan and its
-- version. A repeat gets the first one's run and changes nothing; with another input it
-- raises DDCON. The new run is PENDING. p_parent_run_id and p_parent_step_id: the step whose
-- sub-run it is; p_original_run_id: the one that it does again. p_tenant null: the one that
-- the transaction has set. Raises DDARG, DDTEN, DDNFD for an unknown tenant, parent or original run,
-- DDCON for a removed tenant, and 40001 under REPEATABLE READ.
create or replace function deed.create_run(
  p_plan_id         text,
  p_plan_version    text,
  p_request_id      text,
  p_input           jsonb default '{}',
  p_project         text default 'default',
  p_environment     text default 'default',
  p_plan_sha256     bytea default null,
  p_engine          text default 'local',
  p_original_run_id uuid default null,
  p_parent_run_id   uuid default null,
  p_parent_step_id  text default null,
  p_tenant          uuid default null,
  out run_id        uuid,
  out created       boolean
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_tenant uuid := deed.tenant_of_call('create_run', p_tenant);
  v_now    timestamptz := clock_timestamp();
  v_hash   bytea;
  v_key    bytea;
  v_id     uuid;
  v_other  uuid;
  v_first  bytea;
begin
  if (length(p_plan_id) between 1 and 200 and length(p_plan_version) between 1 and 200 and length(p_request_id) between 1 and 200
    and length(p_project) between 1 and 200 and length(p_environment) between 1 and 200) is not true
  then
    raise exception 'create_run: plan, plan version, request id, project and environment must have 1 to 200 characters each' using errcode = 'DDARG';
  elsif (jsonb_typeof(p_input) = 'object') is not true then
    raise exception 'create_run: the input must be a JSON object' using errcode = 'DDARG';
  elsif octet_length(p_input::text) > 65536 then
    raise exception 'create_run: the input of % bytes is over the limit of 65536', octet_length(p_input::text) using errcode = 'DDARG';
  elsif octet_length(p_input::text) > 2000 and deed.is_deep(convert_to(p_input::text, 'UTF8')) then
    raise exception 'create_run: the input has over 1000 arrays and objects in each other' using errcode = 'DDARG';
  elsif octet_length(p_plan_sha256) <> 32 then
    raise exception 'create_run: a SHA-256 has 32 bytes, and the plan''s has %', octet_length(p_plan_sha256) using errcode = 'DDARG';
  elsif (p_engine ~ '^[a-z][a-z0-9_-]{0,62}$') is not true then
    raise exception 'create_run: engine % must be a-z, then a-z 0-9 _ -', coalesce(quote_literal(left(p_engine, 60)), 'null') using errcode = 'DDARG';
  elsif (p_parent_run_id is null) <> (p_parent_step_id is null) or length(p_parent_step_id) not between 1 and 200 then
    raise exception 'create_run: a parent is a run and one of its steps, of 1 to 200 characters' using errcode = 'DDARG';
  end if;
  foreach v_other in array array[p_parent_run_id, p_original_run_id] loop
    if v_other is not null and not exists (select from deed.runs r where r.run_id = v_other and r.tenant_id = v_tenant) then
      raise exception 'create_run: there is no run % to be its % run', v_other, case v_other when p_parent_run_id then 'parent' else 'original' end
        using errcode = 'DDNFD';
    end if;
  end loop;
  v_hash := sha256(convert_to(p_input::text, 'UTF8'));
  v_key := deed.idempotency_key(v_tenant::text, p_project, p_environment, p_plan_id, p_plan_version, p_request_id);
  created := false;
  -- Look, and then insert, or the second of two at once finds no row; repeated, if its run went
  -- between them. Not a join, which may read all requests in the order of their runs.
  loop
    select q.run_id into run_id from deed.run_requests q where q.request_key = v_key;
    if found then
      select r.input_sha256 into v_first from deed.runs r where r.run_id = create_run.run_id;
    end if;
    if found then
      if v_first <> v_hash then
        raise exception 'create_run: request % has made run %, with another input', quote_literal(p_request_id), run_id
          using errcode = 'DDCON', hint = 'Another input is another request: give it an id of its own.';
      end if;
      return;
    end if;
    v_id := (lpad(to_hex(floor(extract(epoch from v_now) * 1000)::bigint), 12, '0') || '7' || substr(encode(uuid_send(gen_random_uuid()), 'hex'), 14))::uuid;
    if not exists (select from deed.run_partitions p where v_id >= p.from_id and v_id < p.upto_id and p.dropped_at is null) then
      raise exception 'create_run: there is no partition for the events of runs of this week'
        using errcode = 'DDCON', hint = 'Relays make them ahead: run one, or as deed_worker: select deed.keep_partitions().';
    end if;
    insert into deed.run_requests (request_key, run_id, tenant_id) values (v_key, v_id, v_tenant) on conflict do nothing;
    exit when found;
  end loop;
  insert into deed.runs (run_id, tenant_id, project, environment, plan_id, plan_version, plan_sha256, engine, status, input, input_sha256,
    original_run_id, parent_run_id, parent_step_id, created_at)
  values (v_id, v_tenant, p_project, p_environment, p_plan_id, p_plan_version, p_plan_sha256, p_engine, 'PENDING', p_input, v_hash,
    p_original_run_id, p_parent_run_id, p_parent_step_id, v_now);
  run_id := v_id;
  created := true;
end
$$;
