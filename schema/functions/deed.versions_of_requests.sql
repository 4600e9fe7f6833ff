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
  v_keys     bytea[];
  v_count    int := cardinality(p_tenants);
  v_versions text[] := '{}';
  -- Requests that come together are mostly for one plan: from which one on, and what that plan has.
  v_from     int := 1;
  v_stored   text[];
  v_newest   text;
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'start_run: a request for plan "%" without a version, in a transaction that is %', left(p_plan_ids[1], 200), current_setting('transaction_isolation')
      using errcode = 'DDARG', hint = 'Name the version, or use READ COMMITTED: which version the same request has started before cannot be seen.';
  end if;
  v_keys := array(select deed.request_key(p_tenants[n], p_projects[n], p_environments[n], p_plan_ids[n], null, p_request_ids[n]) from generate_series(1, v_count) n);
  -- Not by a lock that any login may take: the second waits at the index until the first's transaction has ended.
  insert into deed.run_request_lock (request_key) select distinct u.key from unnest(v_keys) u(key) order by u.key;
  delete from deed.run_request_lock l where l.request_key = any (v_keys);

  for n in 1..v_count loop
    continue when p_tenants[n] = p_tenants[n + 1] and p_plan_ids[n] = p_plan_ids[n + 1];
    v_stored := array(
      select p.plan_version from deed.plans p where p.tenant_id = p_tenants[n] and p.plan_id = p_plan_ids[n]
      order by p.created_at desc, p.plan_version desc
    );
    v_newest := coalesce((
      select f.version::text
      from deed.run_functions f
      where f.function_id = p_plan_ids[n]
      order by exists (
          select from deed.run_workers w where w.seen_until > clock_timestamp() and 'go:' || f.function_id || '@' || f.version = any (w.queues)
        ) desc, f.version desc
      limit 1
    ), v_stored[1]);
    v_versions := v_versions || array(
      select coalesce((
          select s.version
          from unnest(v_stored) s(version)
          -- The key apart, and in the order of the index: else all requests may be read, with a key computed for each.
          cross join lateral (
            select deed.request_key(p_tenants[g], p_projects[g], p_environments[g], p_plan_ids[g], s.version, p_request_ids[g]) as key offset 0
          ) k
          cross join lateral (select from deed.run_requests q where q.request_key = k.key order by q.request_key limit 1) q
          limit 1
        ), v_newest)
      from generate_series(v_from, n) g
    );
    v_from := n + 1;
  end loop;
  return v_versions;
end
$$;
