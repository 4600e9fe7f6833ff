-- deed.start_run: make the run that a request asks for and begin it, or find the one that it
-- has made (R12), in the caller's transaction: it begins if and only if that commits. The plan
-- and its version must be stored (deed.put_plan), and the run keeps that plan; or an engine has registered it as a
-- Go function (deed.register_functions): the tenant's first run of it stores it.
--
-- Without a version it is the one that the same request has started before; else of a function the newest that a worker
-- serves, or that is registered, and of a plan the one that was stored last.
--
-- status is RUNNING, or PENDING where the plan wants a person's approval (deed.approve_run),
-- or where a repeat finds it. All else is as deed.create_run and deed.start_runs have it. deed.begin_requests does it.
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
begin
  select b.run_id, b.created, b.status into run_id, created, status
  from deed.begin_requests(array[p_plan_id], array[p_plan_version], array[p_request_id], array[p_input], array[p_project], array[p_environment], array[p_original_run_id],
    array[p_parent_run_id], array[p_parent_step_id], array[p_tenant]) b;
end
$$;
