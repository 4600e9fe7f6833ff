-- deed.reserve: make deliveries, in the caller's transaction, before anyone
-- calls a provider (D1); one statement for any number of them.
--
-- All are the tenant's, p_tenant or the one that the transaction has set.
-- Arrays that are given have one entry a delivery; a null entry, as a null
-- array, stands for the default. A key that the tenant's workspace has used
-- makes no second row: duplicate is true, with the first one's id (D2, D3).
-- White space around a recipient is taken away. One that is suppressed for what the
-- delivery is for (p_purposes, deed.suppressed) when it is due, or none, is reserved as skipped, and so is what its contact has revoked
-- (deed.revoked), and what has expired: from p_expires_at on nobody
-- is called any more. What is not an address of its channel is refused
-- (deed.check_address), and so is a provider that no dispatcher has registered
-- (deed.register_provider): nobody might ever serve it. p_contacts says for whom it is,
-- one of the tenant's contacts (deed.upsert_contacts) who has not been erased, and
-- p_channel_message_ids to what of deed.channel_messages it is an answer. A payload is bounded by a setting (max_delivery). A
-- process_after that lies more than an hour back counts as now. Over e-mail a payload's cc are addresses of
-- people who get a copy (deed.payload_copies): where one of them is suppressed it is skipped, too.
-- Attachments may name files by their SHA-256 (deed.put_content), which stay until nothing needs them (deed.lock_contents).
-- Returns one row a delivery, n counting from 1. One audit row for the call.
-- Raises DDARG, DDTEN, DDNFD for an unknown tenant, provider, contact, channel message or file, DDCON for a
-- contact who was erased, and 40001 where a
-- transaction's snapshot hides the first row of a duplicate.
--
-- SECURITY DEFINER: nobody may write the table itself.
create or replace function deed.reserve(
  p_channels            text[],
  p_providers           text[],
  p_recipients          text[],
  p_payloads            jsonb[],
  p_keys                bytea[],
  p_recipient_ids       text[] default null,
  p_guarantees          text[] default null,
  p_process_after       timestamptz[] default null,
  p_correlation_ids     text[] default null,
  p_channel_message_ids uuid[] default null,
  p_workspaces          uuid[] default null,
  p_max_attempts        int[] default null,
  p_expires_at          timestamptz[] default null,
  p_purposes            text[] default null,
  p_tenant              uuid default null,
  p_actor               text default null,
  p_contacts            uuid[] default null
) returns table (n int, id uuid, status text, duplicate boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set work_mem = '64MB'
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_tenant uuid := deed.tenant_of_call('reserve', p_tenant);
  v_count  int := coalesce(cardinality(p_keys), 0);
  v_now    timestamptz := clock_timestamp();
  v_ms     text := lpad(to_hex(floor(extract(epoch from v_now) * 1000)::bigint), 12, '0');
  v_prefix text := left(v_ms, 8) || '-' || right(v_ms, 4) || '-7';
  v_ids    uuid[];
  v_folded text[]; -- the addresses; null: it is none
  v_made   bigint;
  v_left   bigint; -- how many are skipped
  v_bad    record;
  v_named  text[]; -- the providers,
  v_kinds  text[]; -- of their lanes; null: none of them has any,
  v_names  text[] := '{}'; -- and which of them are no names
  v_vague  text[] := '{}'; -- the purposes that are none
  v_skips  text[]; -- by delivery: why it is skipped; null: none is
  v_none   text;
  v_files  bigint[]; -- the bytes of those that each names; null: none does
  v_max    int := (select s.max_delivery from deed.settings s);
  v_listed boolean := exists (select from deed.suppressions s where s.tenant_id = v_tenant);
begin
  if v_count = 0 then
    return;
  end if;
  if not (v_count = all (array[
    coalesce(cardinality(p_channels), 0), coalesce(cardinality(p_providers), 0), coalesce(cardinality(p_recipients), 0), coalesce(cardinality(p_payloads), 0),
    coalesce(cardinality(p_recipient_ids), v_count), coalesce(cardinality(p_guarantees), v_count), coalesce(cardinality(p_process_after), v_count),
    coalesce(cardinality(p_correlation_ids), v_count), coalesce(cardinality(p_channel_message_ids), v_count), coalesce(cardinality(p_workspaces), v_count),
    coalesce(cardinality(p_max_attempts), v_count), coalesce(cardinality(p_expires_at), v_count), coalesce(cardinality(p_purposes), v_count), coalesce(cardinality(p_contacts), v_count)
  ])) then
    raise exception 'reserve: the arrays do not have one entry a delivery each (% keys)', v_count using errcode = 'DDARG';
  end if;
  if exists (
    select from unnest(array[
      array_dims(p_channels), array_dims(p_providers), array_dims(p_recipients), array_dims(p_payloads), array_dims(p_keys),
      array_dims(p_recipient_ids), array_dims(p_guarantees), array_dims(p_process_after), array_dims(p_correlation_ids),
      array_dims(p_channel_message_ids), array_dims(p_workspaces), array_dims(p_max_attempts), array_dims(p_expires_at), array_dims(p_purposes), array_dims(p_contacts)
    ]) d
    where d <> format('[1:%s]', v_count)
  ) then
    raise exception 'reserve: the arrays must have one dimension and count from 1' using errcode = 'DDARG';
  end if;
  select array_agg(u.name), case when bool_or(r.lanes <> 'none') then array_agg(r.lanes) end, min(u.name) filter (where r.name is null) into v_named, v_kinds, v_none
  from (select distinct p.name from unnest(p_providers) p(name)) u
  left join deed.providers r on r.name = u.name;
  if v_none is not null then
    v_names := array(select p from unnest(v_named) p where p !~ '^[A-Za-z0-9._-]{1,100}$');
  end if;
  if p_purposes is not null then
    v_vague := array(select distinct p from unnest(p_purposes) p where p !~ '^([A-Za-z0-9._-]{1,100})?$');
  end if;
  v_folded := array(select deed.fold_address(p_channels[n], p_recipients[n]) from generate_series(1, v_count) n);
  select min(v.n) filter (where v.problem is not null) as n, (array_agg(v.problem order by v.n) filter (where v.problem is not null))[1] as problem, bool_or(v.copied) as copied, bool_or(v.filed) as filed
  into v_bad
  from (
    select u.n, case
        when u.channel is null or u.channel not in ('email', 'sms', 'voice', 'social', 'chat', 'webhook')
          then format('channel %s is none of email, sms, voice, social, chat, webhook', coalesce(quote_literal(left(u.channel, 60)), 'null'))
        when u.provider is null or u.provider = any (v_names) then 'provider must be 1 to 100 characters of A-Z a-z 0-9 . _ -'
        when u.key is null or octet_length(u.key) <> 32 then 'key must be the 32 bytes of deed.idempotency_key'
        when u.payload is null or jsonb_typeof(u.payload) <> 'object' then 'payload must be a JSON object'
        when pg_column_size(u.payload) > v_max then format('payload of %s bytes is over the limit of %s', pg_column_size(u.payload), v_max)
        -- Without writing it out: 64 KiB of 1e131071 are half a gigabyte as text.
        when pg_column_size(u.payload) > 8000 and jsonb_path_exists(u.payload, 'strict $.**{1000} ? (@.type() == "array" || @.type() == "object")')
          then 'payload has over 1000 arrays and objects in each other'
        when jsonb_path_exists(u.payload, 'strict $.** ? (@.type() == "number")') and deed.json_digits(u.payload) > v_max
          then format('payload has numbers with so many digits that it is over the limit of %s bytes', v_max)
        when u.folded is null and btrim(u.recipient, e' \t\r\n') <> ''
          then format('recipient is not an address of the channel %s: %s', u.channel, (deed.check_address(u.channel, u.recipient)).problem)
        when u.copied and (array_position(deed.payload_copies(u.payload), null) > 0 or jsonb_array_length(nullif(u.payload -> 'cc', 'null')) > 20)
          then 'cc in the payload must be a list of up to 20 addresses, without names'
        when u.guarantee not in ('at_most_once', 'at_least_once') then 'guarantee must be at_most_once or at_least_once'
        when u.max_attempts not between 1 and 1000 then 'max_attempts must be from 1 to 1000'
        when not isfinite(u.process_after) or u.process_after >= '10000-01-01Z' then 'process_after is infinite or after the year 9999'
        when not isfinite(u.expires_at) or u.expires_at >= '10000-01-01Z' then 'expires_at is infinite or after the year 9999'
        when u.expires_at <= u.process_after then 'it would expire before it is due: expires_at is not after process_after'
        when u.purpose = any (v_vague) then 'purpose must be 1 to 100 characters of A-Z a-z 0-9 . _ -, or empty for none'
        when length(u.correlation_id) > 200 or length(u.recipient_id) > 200 then 'correlation id or recipient id has over 200 characters'
      end as problem, u.copied, u.filed
    from (
      -- By number, here and below: unnest would write each of the arrays down first.
      select n, p_channels[n] as channel, p_providers[n] as provider, p_recipients[n] as recipient, p_payloads[n] as payload,
        p_keys[n] as key, p_guarantees[n] as guarantee, p_process_after[n] as process_after, p_max_attempts[n] as max_attempts,
        p_correlation_ids[n] as correlation_id, p_recipient_ids[n] as recipient_id,
        p_expires_at[n] as expires_at, p_purposes[n] as purpose, v_folded[n] as folded, p_channels[n] = 'email' and p_payloads[n] ?| '{cc,CC,Cc,cC}' as copied,
        p_channels[n] = 'email' and p_payloads[n] ? 'attachments' as filed
      from generate_series(1, v_count) n
    ) u
    offset 0
  ) v;
  if v_bad.n is not null then
    raise exception 'reserve: delivery %: %', v_bad.n, v_bad.problem using errcode = 'DDARG';
  end if;
  if v_none is not null then
    raise exception 'reserve: the provider % is not registered (deed providers list names those that are); a relay registers those of its deed.yaml when it starts, and deed providers register does so before', v_none
      using errcode = 'DDNFD', hint = 'Register a new provider first, then deploy what reserves for it.';
  end if;

  if p_channel_message_ids is not null or p_contacts is not null then
    -- Here there is a choice of indexes, and in what the foreign key asks.
    perform set_config('plan_cache_mode', deed.plan_mode(array['deed.contacts'::regclass, 'deed.channel_messages'::regclass]), true);
    select u.id::text into v_none
    from unnest(p_channel_message_ids) u(id)
    where u.id is not null and not exists (select from deed.channel_messages m where m.tenant_id = v_tenant and m.id = u.id)
    limit 1;
    if found then
      raise exception 'reserve: there is no channel message %', v_none using errcode = 'DDNFD';
    end if;
    if cardinality(array_remove(p_contacts, null)) > 0 then
      perform deed.lock_contacts('reserve', v_tenant, p_contacts);
    end if;
  end if;
  if v_bad.filed then
    v_files := deed.lock_contents(v_tenant, p_channels, p_payloads, p_keys, p_workspaces);
  end if;

  -- Mostly nothing can be the matter, and then nothing is asked for each.
  if v_listed or array_position(v_folded, null) is not null or p_expires_at is not null or p_contacts is not null and p_purposes is not null then
    v_skips := array(
      select coalesce(case
          when v_folded[n] is null then 'no address'
          when p_expires_at[n] <= v_now then 'expired'
          when v_listed then (
            select 'suppressed: ' || left(s.reason, 180)
            from deed.suppressed(v_tenant, p_channels[n], v_folded[n], coalesce(p_purposes[n], ''), greatest(v_now, p_process_after[n])) s
            union all
            select 'suppressed, of those who get a copy: ' || left(s.reason, 150)
            from deed.suppressed_copy(v_tenant, case when v_bad.copied and p_channels[n] = 'email' then deed.payload_copies(p_payloads[n]) end,
              coalesce(p_purposes[n], ''), greatest(v_now, p_process_after[n])) s
            limit 1
          )
        end, (select v.reason from deed.revoked(v_tenant, p_contacts[n], p_channels[n], p_purposes[n]) v))
      from generate_series(1, v_count) n
    );
  end if;

  -- UUIDv7 of this moment.
  v_ids := array(
    select (v_prefix || substr(gen_random_uuid()::text, 16))::uuid from generate_series(1, v_count)
  );
  -- In the order of the keys: otherwise two callers with the same keys
  -- deadlock.
  with made as (
    insert into deed.channel_outbox (
      id, tenant_id, workspace_id, idempotency_key, status, skipped, skip_reason, finished_at, channel, provider, lane,
      recipient, recipient_id, payload, guarantee, process_after, max_attempts, correlation_id, channel_message_id,
      expires_at, purpose, contact_id, due, payload_bytes, cc, contents, created_at, updated_at
    )
    select v_ids[o.n], v_tenant, coalesce(p_workspaces[o.n], '00000000-0000-0000-0000-000000000000'), p_keys[o.n],
      case when v_skips[o.n] is null then 'queued' else 'skipped' end, v_skips[o.n] is not null, v_skips[o.n], case when v_skips[o.n] is not null then v_now end,
      p_channels[o.n], p_providers[o.n], case when v_kinds is null then '' else coalesce(deed.lane_of(v_kinds[array_position(v_named, p_providers[o.n])], p_channels[o.n], v_folded[o.n]), '') end,
      btrim(p_recipients[o.n], e' \t\r\n'), p_recipient_ids[o.n], p_payloads[o.n], coalesce(p_guarantees[o.n], 'at_most_once'), case when p_process_after[o.n] >= v_now - interval '1 hour' then p_process_after[o.n] end,
      p_max_attempts[o.n], p_correlation_ids[o.n], p_channel_message_ids[o.n],
      p_expires_at[o.n], coalesce(p_purposes[o.n], ''), p_contacts[o.n], v_skips[o.n] is null and coalesce(p_process_after[o.n] <= v_now, true), octet_length(p_payloads[o.n]::text) + coalesce(v_files[o.n] / 3 * 4, 0)::int,
      case when v_bad.copied and p_channels[o.n] = 'email' then deed.payload_copies(p_payloads[o.n]) end,
      case when v_files[o.n] > 0 then deed.payload_contents(p_payloads[o.n]) end, v_now, v_now
    from (select n from generate_series(1, v_count) n order by p_keys[n], p_workspaces[n], n offset 0) o
    on conflict on constraint channel_outbox_idempotency_key_key do nothing
    returning id, status
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details)
    select v_tenant, coalesce(nullif(left(p_actor, 200), ''), session_user), 'reserve', 'delivery',
      case when v_count = 1 then v_ids[1]::text end, null, 'queued', count(*),
      jsonb_build_object('asked', v_count, 'skipped', count(*) filter (where m.status = 'skipped'))
    from made m
    having count(*) > 0
  )
  select count(*), count(*) filter (where m.status = 'skipped') into v_made, v_left from made m;

  if v_made = v_count and v_left = 0 then
    return query select n, v_ids[n], 'queued'::text, false from generate_series(1, v_count) n;
    return;
  end if;
  return query
  select u.n::int, c.id, c.status, c.id is distinct from u.id
  from unnest(v_ids, p_keys, p_workspaces) with ordinality u(id, key, workspace, n)
  left join deed.channel_outbox c on c.tenant_id = v_tenant
    and c.workspace_id = coalesce(u.workspace, '00000000-0000-0000-0000-000000000000') and c.idempotency_key = u.key
  order by u.n;
  if exists (
    select from unnest(p_keys, p_workspaces) u(key, workspace)
    where not exists (
      select from deed.channel_outbox c where c.tenant_id = v_tenant
        and c.workspace_id = coalesce(u.workspace, '00000000-0000-0000-0000-000000000000') and c.idempotency_key = u.key
    )
  ) then
    raise exception 'reserve: a delivery with the same key was reserved since this transaction began' using errcode = '40001';
  end if;
end
$$;
