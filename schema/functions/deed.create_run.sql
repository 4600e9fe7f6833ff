-- deed.create_run: make the run that a request asks for, or find the one that it has made
-- (R12), in the caller's transaction.
--
-- The request is p_request_id, for the tenant, the project, the environment, the plan and its
-- version. A repeat gets the first one's run and changes nothing; with another input it
-- raises DDCON. The new run is PENDING. p_parent_run_id and p_parent_step_id: the step whose
-- sub-run it is; p_original_run_id: the one that it does again. p_tenant null: the one that
-- the transaction has set. Raises DDARG, DDTEN, DDNFD for an unknown tenant, parent or original run,
-- DDCON for a removed tenant, and 40001 under REPEATABLE READ. deed.create_runs does it.
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
as $$
begin
  select c.run_id, c.created into run_id, created
  from deed.create_runs(array[deed.tenant_of_call('create_run', p_tenant)], array[p_plan_id], array[p_plan_version], array[p_request_id], array[p_input], array[p_project],
    array[p_environment], array[p_plan_sha256], array[p_engine], array[p_original_run_id], array[p_parent_run_id], array[p_parent_step_id], array[null::bytea]) c;
end
$$;
