-- deed.start_run: make the run that a request asks for and begin it, or find the one that it
-- has made (R12), in the caller's transaction: it begins if and only if that commits. The plan
-- and its version must be stored (deed.put_plan), and the run keeps that plan; or an engine has registered it as a
-- Go function (deed.register_functions): the tenant's first run of it stores it.
--
-- Without a version it is the one that the same request has started before; else of a function the newest that a worker
-- serves, or that is registered, and of a plan the one that was stored last.
--
-- status is RUNNING, or PENDING where the plan wants a person's approval (deed.approve_run),
-- or where a repeat finds it. All else is as deed.create_run and deed.start_runs have it.
create or replace function deed.start_run(
  p_plan_id         text,
  p_plan_version    text,
  p_request_id      text,
  p_input           jsonb default '{}',
  p_project         text default 'default',
  p_environment     text default 'default',
  p_original_run_id uuid default null,
  p_parent_run_id   uuid default null,
  p_parent_step_id  text default null,
  p_tenant          uuid default null,
  out run_id        uuid,
  out created       boolean,
  out status        text
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_tenant uuid := deed.tenant_of_call('start_run', p_tenant);
  v_sha256 bytea;
begin
  if p_plan_version is null then
    p_plan_version := deed.version_of_request(v_tenant, p_plan_id, p_request_id, p_project, p_environment);
    if p_plan_version is null and p_plan_id <> '' then
      raise exception 'start_run: there is no plan "%"', left(p_plan_id, 200)
        using errcode = 'DDNFD', hint = 'Store it with: deed plan put. A Go function is known from when a program that has it is started for the first time.';
    end if;
  end if;
  select p.sha256 into v_sha256 from deed.plans p where p.tenant_id = v_tenant and p.plan_id = p_plan_id and p.plan_version = p_plan_version;
  if not found then
    select p.sha256 into v_sha256
    from deed.run_functions f
    cross join lateral deed.put_plan(f.body, p_tenant => p_tenant) p
    where f.function_id = p_plan_id and f.version::text = p_plan_version;
  end if;
  if not found then
    raise exception 'start_run: version % of plan % is not stored', coalesce(quote_literal(left(p_plan_version, 200)), 'null'), coalesce(quote_literal(left(p_plan_id, 200)), 'null')
      using errcode = 'DDNFD', hint = 'Store it with: deed plan put. A Go function is known from when a program that has it is started for the first time.';
  end if;
  select c.run_id, c.created into run_id, created
  from deed.create_run(p_plan_id, p_plan_version, p_request_id, p_input, p_project, p_environment, v_sha256, 'local', p_original_run_id, p_parent_run_id, p_parent_step_id, p_tenant) c;
  if not created then
    select r.status into status from deed.runs r where r.run_id = start_run.run_id;
    if status <> 'PENDING' then
      return; -- nothing is locked for it
    end if;
  end if;
  select s.status into status from deed.start_runs(array[run_id]) s;
end
$$;
