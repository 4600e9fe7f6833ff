-- deed.start_requests: start what many ask for in one call and one commit; of each it does what deed.start_run does, and returns a row,
-- in their order.
--
-- The arrays are parallel, of 1,000 requests at most; a tenant that is null is the one that the transaction has set. What is wrong with one is raised, and nothing of
-- the call is kept. Who waits longer than 200 ms for a request that somebody else is starting, in a transaction that is left open, gets 55P03: others wait with it, so each is
-- asked again alone. Raises DDARG, and all that deed.start_run raises.
create or replace function deed.start_requests(
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
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
begin
  return query
  select b.ordinal, b.run_id, b.created, b.status
  from deed.begin_requests(p_plan_ids, p_plan_versions, p_request_ids, p_inputs, p_projects, p_environments, p_originals, p_parents, p_parent_steps, p_tenants) b;
end
$$;
