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
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now      timestamptz;
  v_ids      uuid[];
  v_created  bool[];
  v_statuses text[];
  v_claim    bigint;
begin
  if (p_limit between 0 and 10000) is not true then
    raise exception 'start_and_claim: limit must be from 0 to 10000, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  elsif coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'start_and_claim: worker must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'start_and_claim: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  end if;
  select array_agg(b.run_id order by b.ordinal), array_agg(b.created order by b.ordinal), array_agg(b.status order by b.ordinal) into v_ids, v_created, v_statuses
  from deed.start_requests(p_plan_ids, p_plan_versions, p_request_ids, p_inputs, p_projects, p_environments, p_originals, p_parents, p_parent_steps, p_tenants) b;
  -- As in deed.claim_steps: what is handed out must have been flushed.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  v_claim := deed.claim_number();
  v_now := clock_timestamp(); -- now: to start them may have taken a while
  -- Steps of runs that this transaction has made: they are ready, nobody has locked them, and they stay where they are.
  update deed.run_steps s
  set claim = v_claim, claimed_at = v_now, claimed_by = p_worker, lease_until = v_now + p_lease, engine_attempt = 1
  where s.ctid = any (array(
    select f.ctid
    from generate_series(1, cardinality(v_ids)) n
    cross join lateral (
      select o.ctid from deed.run_steps o
      where v_created[n] and o.run_id = v_ids[n] and o.queue = any (p_queues)
      order by o.place
      limit 1
    ) f
    limit p_limit
  ));
  return query
  select n, v_ids[n], v_created[n], v_statuses[n], not v_created[n] or exists (select from deed.run_steps o where o.run_id = v_ids[n] and o.claim is null and o.queue = any (p_queues)),
    s.place, s.claim, s.tenant_id, s.step_id, s.at_most_once, s.plan_id, s.plan_version, s.plan_sha256, s.input
  from generate_series(1, cardinality(v_ids)) n
  left join lateral (
    select f.place, f.claim, f.tenant_id, f.step_id, f.at_most_once, r.plan_id, r.plan_version, r.plan_sha256, r.input
    from deed.run_steps f
    cross join lateral (select o.plan_id, o.plan_version, o.plan_sha256, o.input from deed.runs o where o.run_id = f.run_id) r
    where v_created[n] and f.run_id = v_ids[n] and f.claim = v_claim
    offset 0
  ) s on true;
end
$$;
