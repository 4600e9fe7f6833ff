-- deed.claim_external: lease up to p_limit steps of kind external to one worker, of a queue that plans name. For workers in
-- any language: it is all they need, with deed.extend_external, deed.finish_external and deed.fail_external.
--
-- An engine has computed what each is asked with (input), and the key by which the other end knows a repeat (idempotency_key).
-- secrets are references by name, which the worker resolves itself. claim is the fencing token. With a lease that runs out the step goes back
-- to the engines, who offer it again, or say what became of it: WORKER_LOST after ten lost claims, OUTCOME_UNKNOWN where the
-- plan says at_most_once, TIMEOUT past the deadline, which is the plan's timeout from the claim on; no lease reaches past it.
--
-- Tenants share alike; of a tenant the oldest first; p_tenant: of that one alone. Rows that another claimer holds are skipped. Of a run that is
-- paused, and of a tenant that is being removed, nothing is taken. Raises DDARG.
create or replace function deed.claim_external(
  p_queue  text,
  p_worker text,
  p_limit  int default 1,
  p_lease  interval default interval '30 seconds',
  p_tenant uuid default null
) returns table (
  run_id uuid, step_id text, claim bigint, tenant_id uuid, plan_id text, plan_version text, environment text, attempt int, engine_attempt int,
  input jsonb, secrets jsonb, idempotency_key text, lease_until timestamptz, deadline timestamptz
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
  v_now     timestamptz := clock_timestamp();
  v_queue   text := 'external:' || p_queue;
  v_tenants uuid[];
  v_n       int;
  v_dry     bool[] := '{}'; -- nothing is left there
  v_left    int := p_limit;
  v_got     tid[];
  v_rows    tid[] := '{}';
  v_share   int;
  v_at      int;
  v_claim   bigint;
begin
  if (p_limit between 1 and 1000) is not true then
    raise exception 'claim_external: limit must be from 1 to 1000, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  elsif (length(p_worker) between 1 and 200 and length(p_queue) between 1 and 200) is not true then
    raise exception 'claim_external: queue and worker must have 1 to 200 characters each' using errcode = 'DDARG';
  elsif (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'claim_external: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  end if;

  perform deed.serve_external(v_queue, p_worker);

  -- One look into the index for each tenant that has something here, from a point of chance on.
  with recursive around as (
    select (
        select s.tenant_id from deed.run_steps s
        where s.ready and s.engine = 'local' and s.queue = v_queue and s.tenant_id >= b.at and (p_tenant is null or s.tenant_id = p_tenant)
        order by s.tenant_id limit 1
      ) as tenant_id, b.n
    from (values (gen_random_uuid(), 0), ('00000000-0000-0000-0000-000000000000'::uuid, 100)) b(at, n)
    union all
    select (
      select s.tenant_id from deed.run_steps s
      where s.ready and s.engine = 'local' and s.queue = v_queue and s.tenant_id > r.tenant_id and (p_tenant is null or s.tenant_id = p_tenant)
      order by s.tenant_id limit 1
    ), r.n + 1
    from around r
    where r.tenant_id is not null and (r.n < 99 or r.n between 100 and 198)
  )
  select coalesce(array_agg(t.tenant_id order by t.toss), '{}') into v_tenants
  from (
    select r.tenant_id, random() as toss
    from (select distinct a.tenant_id from around a where a.tenant_id is not null) r
    where not exists (select from deed.tenant_removals m where m.tenant_id = r.tenant_id and m.finished_at is null)
  ) t;
  v_n := cardinality(v_tenants);
  for k in 1..2 * v_n loop
    exit when v_left < 1;
    v_at := 1 + (k - 1) % v_n;
    continue when v_dry[v_at];
    v_share := case when k <= v_n then ceil(v_left::float8 / (v_n - k + 1))::int else v_left end;
    v_got := array(
      select s.ctid
      from deed.run_steps s
      where s.ready and s.engine = 'local' and s.queue = v_queue and s.tenant_id = v_tenants[v_at] and s.claim is null and s.ctid <> all (v_rows)
      order by s.process_after
      limit v_share
      for update skip locked
    );
    v_dry[v_at] := cardinality(v_got) < v_share;
    v_rows := v_rows || v_got;
    v_left := v_left - cardinality(v_got);
  end loop;
  if v_rows = '{}' then
    return;
  end if;

  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  v_claim := deed.claim_number();
  return query
  with claimed as (
    update deed.run_steps s
    set ready = false,
      claim = case when p.paused then null else v_claim end,
      claimed_at = case when p.paused then null else v_now end,
      claimed_by = case when p.paused then null else p_worker end,
      lease_until = case when p.paused then null else p.until end,
      begun_at = case when p.paused then null else v_now end,
      begun_claim = case when p.paused then null else v_claim end,
      deadline = case when p.paused then null else p.deadline end,
      engine_attempt = s.engine_attempt + case when p.paused then 0 else 1 end,
      process_after = case when p.paused then v_now + interval '5 seconds' else p.until end
    from unnest(v_rows) u(place)
    cross join lateral (
      select r.status = 'PAUSED' as paused, r.plan_id, r.plan_version, r.environment, d.deadline, least(v_now + p_lease, d.deadline) as until
      from deed.run_steps o
      cross join lateral (select q.status, q.plan_id, q.plan_version, q.environment from deed.runs q where q.run_id = o.run_id) r
      cross join lateral (select v_now + make_interval(secs => (o.offer ->> 'timeout')::float8) as deadline) d
      where o.ctid = u.place
    ) p
    where s.ctid = u.place -- locked above: they stay where they are
    returning s.run_id, s.step_id, s.claim, s.tenant_id, p.plan_id, p.plan_version, p.environment, s.attempt, s.engine_attempt, s.offer, s.lease_until, s.deadline
  )
  select c.run_id, c.step_id, c.claim, c.tenant_id, c.plan_id, c.plan_version, c.environment, c.attempt, c.engine_attempt, c.offer -> 'input', coalesce(c.offer -> 'secrets', '{}'),
    c.offer ->> 'key', c.lease_until, c.deadline
  from claimed c
  where c.claim is not null;
end
$$;
