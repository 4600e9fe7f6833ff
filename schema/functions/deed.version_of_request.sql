-- deed.version_of_request: which version of a plan a request is for that names none (deed.start_run): the one that it
-- has started before, whatever has come since, so that a repeat is one (R12). Else of a Go function the newest that a
-- worker serves, or if none serves any the newest; and of a plan the one that was stored last. null: there is none.
--
-- Two at once wait for each other, as two of one version do: the second sees what the first has started. Under REPEATABLE READ it
-- would not, and raises DDARG: such a transaction names the version.
create or replace function deed.version_of_request(
  p_tenant      uuid,
  p_plan_id     text,
  p_request_id  text,
  p_project     text,
  p_environment text
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key     bytea := deed.idempotency_key(p_tenant::text, p_project, p_environment, p_plan_id, p_request_id);
  v_version text;
begin
  if p_plan_id is null or p_request_id is null or p_project is null or p_environment is null then
    return null;
  end if;
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'start_run: a request for plan "%" without a version, in a transaction that is %', left(p_plan_id, 200), current_setting('transaction_isolation')
      using errcode = 'DDARG', hint = 'Name the version, or use READ COMMITTED: which version the same request has started before cannot be seen.';
  end if;
  -- Not by a lock that any login may take: the second waits at the index until the first's transaction has ended.
  insert into deed.run_request_lock (request_key) values (v_key);
  delete from deed.run_request_lock l where l.request_key = v_key;
  select v.version into v_version
  from (
    select p.plan_version as version from deed.plans p where p.tenant_id = p_tenant and p.plan_id = p_plan_id
  ) v
  where exists (
    select from deed.run_requests q where q.request_key = deed.idempotency_key(p_tenant::text, p_project, p_environment, p_plan_id, v.version, p_request_id)
  );
  if found then
    return v_version;
  end if;
  select f.version::text into v_version
  from deed.run_functions f
  where f.function_id = p_plan_id
  order by exists (
      select from deed.run_workers w where w.seen_until > clock_timestamp() and 'go:' || f.function_id || '@' || f.version = any (w.queues)
    ) desc, f.version desc
  limit 1;
  if found then
    return v_version;
  end if;
  select p.plan_version into v_version
  from deed.plans p
  where p.tenant_id = p_tenant and p.plan_id = p_plan_id
  order by p.created_at desc, p.plan_version desc
  limit 1;
  return v_version;
end
$$;
