-- deed.versions_of_requests: which versions of plans requests are for that name none (deed.start_run): the one that such a
-- one has started before, whatever has come since, so that a repeat is one (R12). Else of a Go function the newest that a
-- worker serves, or if none serves any the newest; and of a plan the one that was stored last. null: there is none. The arrays are parallel, and only a version is null.
--
-- Two at once wait for each other, as two of one version do: the second sees what the first has started. Under REPEATABLE READ it
-- would not, and raises DDARG: such a transaction names the version.
create or replace function deed.versions_of_requests(
  p_tenants      uuid[],
  p_plan_ids     text[],
  p_request_ids  text[],
  p_projects     text[],
  p_environments text[]
) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_keys     bytea[] := '{}';
  v_versions text[] := '{}';
  v_version  text;
  -- What the plan before this one has, as requests that come together are mostly for one.
  v_tenant   uuid;
  v_plan     text;
  v_stored   text[];
  v_newest   text;
begin
  for n in 1..cardinality(p_tenants) loop
    v_keys := v_keys || deed.idempotency_key(p_tenants[n]::text, p_projects[n], p_environments[n], p_plan_ids[n], p_request_ids[n]);
  end loop;
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'start_run: a request for plan "%" without a version, in a transaction that is %', left(p_plan_ids[1], 200), current_setting('transaction_isolation')
      using errcode = 'DDARG', hint = 'Name the version, or use READ COMMITTED: which version the same request has started before cannot be seen.';
  end if;
  -- Not by a lock that any login may take: the second waits at the index until the first's transaction has ended.
  insert into deed.run_request_lock (request_key) select distinct u.key from unnest(v_keys) u(key) order by u.key;
  delete from deed.run_request_lock l where l.request_key = any (v_keys);

  for n in 1..cardinality(p_tenants) loop
    if (v_tenant = p_tenants[n] and v_plan = p_plan_ids[n]) is not true then
      v_tenant := p_tenants[n];
      v_plan := p_plan_ids[n];
      v_stored := array(
        select p.plan_version from deed.plans p where p.tenant_id = v_tenant and p.plan_id = v_plan
        order by p.created_at desc, p.plan_version desc
      );
      v_newest := coalesce((
        select f.version::text
        from deed.run_functions f
        where f.function_id = v_plan
        order by exists (
            select from deed.run_workers w where w.seen_until > clock_timestamp() and 'go:' || f.function_id || '@' || f.version = any (w.queues)
          ) desc, f.version desc
        limit 1
      ), v_stored[1]);
    end if;
    v_version := (
      select s.version
      from unnest(v_stored) s(version)
      -- The key apart, and in the order of the index: else all requests may be read, with a key computed for each.
      cross join lateral (
        select deed.idempotency_key(p_tenants[n]::text, p_projects[n], p_environments[n], p_plan_ids[n], s.version, p_request_ids[n]) as key offset 0
      ) k
      cross join lateral (select from deed.run_requests q where q.request_key = k.key order by q.request_key limit 1) q
      limit 1
    );
    v_version := coalesce(v_version, v_newest);
    v_versions := v_versions || v_version;
  end loop;
  return v_versions;
end
$$;
