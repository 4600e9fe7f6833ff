-- deed.publish_one: store one message in the caller's transaction (O1).
--
-- What deed.publish_many does for one message, with its promises, results and
-- errors, at half of its cost. A message that is out of the ordinary, or
-- wrong, goes through deed.publish_many: only there is it said what is wrong.
--
-- SECURITY DEFINER: as deed.publish_many.
create or replace function deed.publish_one(
  p_topic           text,
  p_payload         bytea,
  p_key             text default null,
  p_type            text default null,
  p_content_type    text default null,
  p_headers         jsonb default null,
  p_tenant          uuid default null,
  p_idempotency_key text default null,
  p_process_after   timestamptz default null,
  p_raise           boolean default true,
  out id            bigint,
  out message_id    uuid,
  out repeated      boolean,
  out code          text,
  out problem       text
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The transaction's id comes before what it reads of the subscriptions.
  v_xid     xid8 := pg_current_xact_id();
  v_now     timestamptz := clock_timestamp();
  v_text    text := coalesce(current_setting('app.current_tenant_id', true), '');
  v_tenant  uuid := '00000000-0000-0000-0000-000000000000';
  v_s       record;
  v_plain   boolean;
  v_list    text;
  v_slot    int;
  v_sub     int;
begin
  select s.single_tenant, s.bound_logins, s.removed_tenants, s.list_version as settled, coalesce(t.list_version, s.list_version) as list_version,
    s.max_payload, s.strict_topics, t.slot_base, t.mode, t.subscriptions, t.own into v_s
  from deed.settings s
  left join deed.topics t on t.topic = p_topic;

  if v_text <> '' then
    -- One that is no UUID is no tenant: it is said below.
    v_tenant := case when v_text ~* '^([0-9a-f]{4}-?){7}[0-9a-f]{4}$' then v_text::uuid end;
  end if;
  -- A declared topic's name has been checked.
  v_plain := octet_length(p_payload) <= v_s.max_payload
    and (not v_s.own or (v_s.own is null and not v_s.strict_topics and p_topic ~ '^(?!deed[.])[A-Za-z0-9._:/-]{1,200}$'))
    and v_tenant is not null and (v_text <> '' or v_s.single_tenant) and (p_tenant is null or p_tenant = v_tenant)
    and (not v_s.bound_logins or deed.current_tenant() = v_tenant)
    and (not v_s.removed_tenants or not deed.is_removed(v_tenant))
    and p_idempotency_key is null
    and (p_key is null or octet_length(p_key) <= 1000)
    and (p_type is null or octet_length(p_type) <= 200)
    and (p_process_after is null or (p_process_after >= v_now - interval '1 hour' and p_process_after < '10000-01-01Z'))
    and (current_setting('transaction_isolation') = 'read committed'
      or pg_sequence_last_value('deed.list_seq') = v_s.settled);
  if v_plain and p_content_type is not null then
    v_plain := p_content_type ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+/[ -~]{1,150}$';
  end if;
  if v_plain and p_headers is not null then
    -- Few and plain ones by an expression, which costs no statement.
    v_list := p_headers::text;
    v_plain := octet_length(v_list) <= 200 and v_list !~ '"(deed|webhook)-'
      and v_list ~ '^{("[!#$%&''*+.^_`|~0-9a-z-]+": "[] !#-[^-~]*"(, |}$))+$';
    if not v_plain then
      v_plain := jsonb_typeof(p_headers) = 'object' and pg_column_size(p_headers || '{}') <= 65536 -- decompressed, if they come out of a row
        and not exists (select from jsonb_each(p_headers) h(name, value) where deed.is_bad_header(h.name, h.value));
    end if;
  end if;
  if v_plain and (p_content_type is null or deed.is_json(p_content_type)) then
    begin
      v_plain := convert_from(p_payload, 'UTF8')::jsonb is not null; -- an expression: a statement costs as much as the row
      if octet_length(p_payload) > 1024 then -- a statement of its own: to be able to call costs each transaction
        v_plain := deed.json_excess(p_payload) is null;
      end if;
    exception when data_exception or program_limit_exceeded then
      v_plain := false;
    end;
  end if;
  if v_plain is not true then
    select m.id, m.message_id, m.repeated, m.code, m.problem into id, message_id, repeated, code, problem
    from deed.publish_many(
      p_topics           => array[p_topic],
      p_payloads         => array[p_payload],
      p_keys             => array[p_key],
      p_types            => array[p_type],
      p_content_types    => array[p_content_type],
      p_headers          => array[p_headers],
      p_tenants          => array[p_tenant],
      p_idempotency_keys => case when p_idempotency_key is not null then array[p_idempotency_key] end,
      p_process_after    => array[p_process_after],
      p_raise            => p_raise
    ) m;
    return;
  end if;

  id := nextval('deed.log_seq');
  message_id := deed.message_id(v_now, id);
  repeated := false;
  v_slot := deed.slot(coalesce(v_s.slot_base, 0), p_key, id);
  insert into deed.log (
    id, xid, slot, list_version, tenant_id, created_at, process_after,
    topic, key, type, content_type, headers, payload
  )
  values (
    id, v_xid, v_slot, v_s.list_version, v_tenant, v_now, p_process_after,
    p_topic, p_key, p_type, coalesce(p_content_type, 'application/json'), nullif(p_headers, '{}'), p_payload
  );
  if v_s.mode = 'stream' then
    return;
  end if;
  foreach v_sub in array coalesce(nullif(v_s.subscriptions, '{}'), '{0}') loop
    insert into deed.pending (subscription, slot, id, tenant_id, ord_at, process_after)
    values (v_sub, v_slot, id, v_tenant, v_now, p_process_after);
  end loop;
end
$$;
