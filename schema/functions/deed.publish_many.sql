-- deed.publish_many: store messages in the caller's transaction (O1).
--
-- The arrays are parallel; those but the first two may be null. A process_after
-- or created_at of more than an hour ago passes by nobody (deed.order_at). Returns one row
-- a message, in the order given: its number, its identity, and whether its
-- idempotency key had been used before (then they are the first message's, and
-- nothing was stored). Messages are numbered in the order given.
--
-- All or nothing. What is wrong raises DDARG, DDNFD (strict topics) or DDTEN
-- (another tenant's) or DDCON (one that was removed); with p_raise => false it comes back as rows with a code
-- and a problem instead, nothing is stored, and the caller's transaction stays
-- usable. Under REPEATABLE READ or SERIALIZABLE a concurrent publisher of the
-- same idempotency key, or a subscription of one of the topics made since the
-- transaction's snapshot, or its tenant's removal, raises 40001: run the transaction again.
--
-- SECURITY DEFINER: a row takes its number after its transaction has its id
-- (the window protocol's third rule), which only this function sees to.
create or replace function deed.publish_many(
  p_topics           text[],
  p_payloads         bytea[],
  p_keys             text[] default null,
  p_types            text[] default null,
  p_content_types    text[] default null,
  p_headers          jsonb[] default null,
  p_tenants          uuid[] default null,
  p_idempotency_keys text[] default null,
  p_process_after    timestamptz[] default null,
  p_created_at       timestamptz[] default null,
  p_aggregate_types  text[] default null,
  p_raise            boolean default true
) returns table (ordinal int, id bigint, message_id uuid, repeated boolean, code text, problem text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_count   int := coalesce(cardinality(p_topics), 0);
  v_now     timestamptz := clock_timestamp();
  v_xid     xid8;
  v_version bigint;
  v_single  boolean;
  v_text    text := coalesce(current_setting('app.current_tenant_id', true), '');
  v_tenant  uuid := '00000000-0000-0000-0000-000000000000';
  v_bound   boolean;
  v_ids     bigint[];
  v_first   bigint[];
  v_times   timestamptz[];
  v_missing int;
  v_topics  deed.topics[];
  v_names   text[];
  v_bases   int[];
  v_lists   bigint[];
  v_queues  boolean;
begin
  if v_count = 0 then
    return;
  end if;
  if exists (
    select from unnest(array[
      cardinality(p_payloads), cardinality(p_keys), cardinality(p_types), cardinality(p_content_types),
      cardinality(p_headers), cardinality(p_tenants), cardinality(p_idempotency_keys),
      cardinality(p_process_after), cardinality(p_created_at), cardinality(p_aggregate_types)
    ]) c
    where c <> v_count
  ) or p_payloads is null then
    raise exception 'publish: the arrays must be as long as the % topics', v_count using errcode = 'DDARG';
  end if;
  if exists (
    select from unnest(array[
      array_dims(p_topics), array_dims(p_payloads), array_dims(p_keys), array_dims(p_types), array_dims(p_content_types),
      array_dims(p_headers), array_dims(p_tenants), array_dims(p_idempotency_keys),
      array_dims(p_process_after), array_dims(p_created_at), array_dims(p_aggregate_types)
    ]) d
    where d <> format('[1:%s]', v_count)
  ) then
    raise exception 'publish: the arrays must have one dimension and count from 1' using errcode = 'DDARG';
  end if;

  if exists (select from unnest(p_process_after) t where not isfinite(t) or t >= '10000-01-01Z')
    or exists (select from unnest(p_created_at) t where t < '1970-01-01Z' or t >= '10000-01-01Z')
  then
    raise exception 'publish: a time is infinite or out of range' using errcode = 'DDARG';
  end if;
  if exists (select from unnest(p_aggregate_types) t where octet_length(t) > 1000) then
    raise exception 'publish: an aggregate type is over the limit of 1000 bytes' using errcode = 'DDARG';
  end if;

  select s.single_tenant, s.list_version, s.bound_logins into v_single, v_version, v_bound from deed.settings s;
  if not found then
    -- Without it nothing would be stored and nothing be said.
    raise exception 'publish: the settings cannot be read: the schema''s owner has changed, or deed.settings is empty'
      using errcode = 'DDCON', hint = 'Run deed migrate up as the owner.';
  end if;

  -- The function's owner passes row-level security, so the tenant is held here.
  if v_text <> '' or v_bound or not v_single then
    v_tenant := deed.current_tenant();
  end if;
  if v_tenant is null or exists (select from unnest(p_tenants) t where t is distinct from v_tenant and t is not null) then
    -- Who crosses tenants names them, and one that cannot be read is none.
    if (v_text <> '' and v_tenant is null)
      or not (pg_has_role(session_user, 'deed_worker', 'usage') or pg_has_role(session_user, 'deed_admin', 'usage'))
    then
      problem := case
        when v_text <> '' and v_tenant is null then 'publish: app.current_tenant_id is not a UUID, or is a tenant that this login is not bound to'
        when v_tenant is null
          then 'publish: no tenant is set; this installation has several: set app.current_tenant_id in the transaction'
        else 'publish: the message''s tenant is not the one that the transaction has set' end;
      if p_raise then
        raise exception '%', problem using errcode = 'DDTEN';
      end if;
      ordinal := 1;
      code := 'DDTEN';
      return next;
      return;
    end if;
    v_tenant := coalesce(v_tenant, '00000000-0000-0000-0000-000000000000');
  end if;

  for ordinal, code, problem in
    select q.ordinal, q.code, q.problem
    from deed.publish_problems(p_topics, p_payloads, p_keys, p_types, p_content_types, p_headers, p_idempotency_keys) q
  loop
    if p_raise then
      raise exception 'publish: message %: %', ordinal, problem using errcode = code;
    end if;
    return next;
  end loop;
  if problem is not null then
    return;
  end if;

  -- The order matters: the transaction's id, then what it reads of the
  -- subscriptions (deed.backfill relies on it) and of tenants that were removed
  -- (deed.remove_tenant_step does), then the numbers.
  v_xid := pg_current_xact_id();
  if current_setting('transaction_isolation') <> 'read committed'
    and pg_sequence_last_value('deed.list_seq') is distinct from v_version
  then
    lock table deed.topics in row exclusive mode; -- it may wait here; what deed.check_lists meets then are rows
    perform deed.check_lists(p_topics);
    perform deed.check_tenants(p_tenants || v_tenant);
  end if;
  select format('publish: tenant %s was removed', r.tenant_id) into problem
  from (select distinct u.id from unnest(p_tenants || v_tenant) u(id)) u
  join deed.tenant_removals r on r.tenant_id = u.id
  where (select s.removed_tenants from deed.settings s)
  limit 1;
  if found then
    if p_raise then
      raise exception '%', problem using errcode = 'DDCON';
    end if;
    ordinal := 1;
    code := 'DDCON';
    return next;
    return;
  end if;
  v_ids := array(select nextval('deed.log_seq') from generate_series(1, v_count));
  v_first := v_ids;

  if p_idempotency_keys is not null then
    -- Sorted, or two publishers deadlock. Two statements, or the second of two
    -- concurrent publishers finds no row. Repeated, if a key was purged between them.
    loop
      insert into deed.publish_keys (tenant_id, topic, key, id, created_at) -- used_at is now
      select distinct on (tenant, u.topic, u.key)
        coalesce(u.tenant, v_tenant) as tenant, u.topic, u.key, u.id, coalesce(u.created_at, v_now)
      from unnest(p_tenants, p_topics, p_idempotency_keys, v_ids, p_created_at)
        with ordinality u(tenant, topic, key, id, created_at, n)
      where u.key is not null
      order by tenant, u.topic, u.key, u.n
      on conflict do nothing;

      select array_agg(case when u.key is null then u.id else k.id end order by u.n),
        array_agg(k.created_at order by u.n),
        count(*) filter (where u.key is not null and k.id is null)
      into v_first, v_times, v_missing
      from unnest(p_tenants, p_topics, p_idempotency_keys, v_ids) with ordinality u(tenant, topic, key, id, n)
      left join lateral ( -- under REPEATABLE READ one that was purged since the snapshot stands beside the one just made
        select o.id, o.created_at
        from deed.publish_keys o
        where o.tenant_id = coalesce(u.tenant, v_tenant) and o.topic = u.topic and o.key = u.key
        order by o.id desc
        limit 1
      ) k on true;
      exit when v_missing = 0;
    end loop;
  end if;

  -- In one statement, so that the versions are those of the lists read; and each
  -- topic once, not each message. From here on elements are taken by number:
  -- unnest would write each of a dozen arrays down first.
  select s.list_version,
    array(select t from deed.topics t where t.topic = any (p_topics)),
    exists (select from unnest(p_topics) u left join deed.topics t on t.topic = u where t.mode is distinct from 'stream')
  into v_version, v_topics, v_queues
  from deed.settings s;
  v_names := array(select t.topic from unnest(v_topics) t);
  v_bases := array(select t.slot_base from unnest(v_topics) t);
  v_lists := array(select t.list_version from unnest(v_topics) t);

  insert into deed.log (
    id, xid, slot, list_version, tenant_id, created_at, process_after,
    topic, key, type, aggregate_type, content_type, headers, payload
  )
  select v_ids[n], v_xid, deed.slot(coalesce(v_bases[array_position(v_names, p_topics[n])], 0), p_keys[n], v_ids[n]),
    coalesce(v_lists[array_position(v_names, p_topics[n])], v_version),
    coalesce(p_tenants[n], v_tenant), coalesce(p_created_at[n], v_now), p_process_after[n],
    p_topics[n], p_keys[n], p_types[n], p_aggregate_types[n],
    coalesce(p_content_types[n], 'application/json'), nullif(p_headers[n], '{}'), p_payloads[n]
  from generate_series(1, v_count) n
  where v_ids[n] = v_first[n];

  if v_queues then
    insert into deed.pending (subscription, slot, id, tenant_id, ord_at, process_after)
    select sub.id, deed.slot(coalesce(t.slot_base, 0), p_keys[n], v_ids[n]), v_ids[n], coalesce(p_tenants[n], v_tenant),
      deed.order_at(p_created_at[n], v_now), case when p_process_after[n] >= v_now - interval '1 hour' then p_process_after[n] end
    from generate_series(1, v_count) n
    left join unnest(v_topics) t on t.topic = p_topics[n]
    cross join lateral unnest(
      case when t.mode = 'stream' then '{}' else coalesce(nullif(t.subscriptions, '{}'), '{0}') end
    ) sub(id)
    where v_ids[n] = v_first[n]
    order by n;
  end if;

  return query
  select n, v_first[n], deed.message_id(coalesce(v_times[n], p_created_at[n], v_now), v_first[n]),
    v_first[n] <> v_ids[n], null::text, null::text
  from generate_series(1, v_count) n
  order by n;
end
$$;
