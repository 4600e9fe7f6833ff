-- deed.start_and_claim: start what many ask for, as deed.start_requests does, and lease the first step of each run that is new to a worker that is beside the
-- caller: one commit less for each. For workers.
--
-- At most p_limit steps, of those in the queues that it serves, one of a run; all others, and what a request finds of a run made before, are for deed.claim_steps. Nobody else knows these runs
-- before the caller commits, so nothing is waited for. It goes by no tenant's turn: who calls it has had room for all that its last claim found.
--
-- Returns a row for each request, in their order. Where the run's step was claimed it has the rest, which is what deed.claim_steps says of a step in its first attempt; waits: of
-- this run others are left, which are ready, or may be. Raises DDARG, and all that deed.start_requests raises.
create or replace function deed.start_and_claim(
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
  p_queues        text[],
  p_worker        text,
  p_limit         int,
  p_lease         interval default interval '30 seconds'
) returns table (
  ordinal int, run_id uuid, created boolean, status text, waits boolean,
  place int, claim bigint, tenant_id uuid, step_id text, at_most_once bool, plan_id text, plan_version text, plan_sha256 bytea, input jsonb
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
begin
  if (p_limit between 0 and 10000) is not true then
    raise exception 'start_and_claim: limit must be from 0 to 10000, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  elsif coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'start_and_claim: worker must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'start_and_claim: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  end if;
  -- As in deed.claim_steps: what is handed out must have been flushed.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  return query
  select b.ordinal, b.run_id, b.created, b.status, b.waits, b.place, b.claim, b.tenant_id, b.step_id, b.at_most_once, b.plan_id, b.plan_version, b.plan_sha256, b.input
  from deed.begin_requests(p_plan_ids, p_plan_versions, p_request_ids, p_inputs, p_projects, p_environments, p_originals, p_parents, p_parent_steps, p_tenants,
    p_queues, deed.claim_number(), p_worker, p_limit, p_lease) b;
end
$$;
