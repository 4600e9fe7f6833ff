-- deed.tell_feedback: publish what is said of deliveries for the first time to the topic
-- deed.feedback, one message for each time that deed.delivery_feedback lacks, and for a bounce
-- that is graver than the one it has; nothing, while
-- nobody subscribes to it. For deed.apply_events, before it keeps them.
--
-- p_held are the deliveries that the caller has locked. A message's key is its delivery. It has
-- no address: where a reason has one, (address) stands.
create or replace function deed.tell_feedback(
  p_held    uuid[],
  p_ids     uuid[],
  p_events  text[],
  p_ats     timestamptz[],
  p_reasons text[],
  p_codes   text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_xid     xid8;
  v_topic   deed.topics%rowtype;
  v_settled bigint;
  v_removed boolean;
begin
  if p_held is null then
    return;
  end if;
  -- In the order of deed.publish_many: the transaction's id, then what it reads of the
  -- subscriptions and of tenants that were removed, then the numbers.
  v_xid := pg_current_xact_id();
  select t.* into v_topic from deed.topics t where t.topic = 'deed.feedback' and t.own;
  if v_topic.topic is null or v_topic.subscriptions = '{}' then
    return;
  end if;
  select s.list_version, s.removed_tenants into v_settled, v_removed from deed.settings s;
  if current_setting('transaction_isolation') <> 'read committed' and pg_sequence_last_value('deed.list_seq') is distinct from v_settled then
    lock table deed.topics in row exclusive mode;
    perform deed.check_lists(array['deed.feedback']);
  end if;
  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, key, type, content_type, payload)
  select n.id, v_xid, deed.slot(v_topic.slot_base, n.delivery::text, n.id), v_topic.list_version, n.tenant_id, v_now, 'deed.feedback', n.delivery::text, n.event, 'application/json',
    convert_to(jsonb_strip_nulls(jsonb_build_object(
      'delivery_id', n.delivery, 'tenant_id', n.tenant_id, 'correlation_id', n.correlation_id, 'channel_message_id', n.channel_message_id, 'provider', n.provider,
      'event', n.event, 'at', to_char(n.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'reason', n.reason, 'code', n.code
    ))::text, 'UTF8')
  from (
    select nextval('deed.log_seq') as id, q.*
    from (
      select c.id as delivery, c.tenant_id, c.correlation_id, c.channel_message_id, c.provider, e.event, e.at, e.code,
        case when c.erased_at is null then deed.without_addresses(e.reason, c.recipient) end as reason
      from (
        select distinct on (v.id, k.kind) v.id, k.kind, k.gravity, v.event, coalesce(v.at, v_now) as at, left(nullif(v.reason, ''), 1000) as reason, left(nullif(v.code, ''), 100) as code
        from unnest(p_ids, p_events, p_ats, p_reasons, p_codes) v(id, event, at, reason, code)
        cross join lateral (
          select g.gravity, case when g.gravity is not null then 'bounced' else v.event end as kind from (select array_position(array['bounced', 'dropped', 'soft_bounced'], v.event) as gravity) g
        ) k
        where v.id = any (p_held) and v.event <> 'accepted'
        order by v.id, k.kind, k.gravity, coalesce(v.at, v_now), v.code, v.reason
      ) e
      cross join lateral (
        select o.id, o.tenant_id, o.correlation_id, o.channel_message_id, o.provider, o.erased_at, o.recipient from deed.channel_outbox o where o.id = e.id
      ) c
      where not exists (
        select from deed.delivery_feedback f
        where f.delivery_id = e.id and case e.kind
          when 'delivered' then f.delivered_at when 'bounced' then case when e.gravity < array_position(array['hard', 'dropped', 'soft'], f.bounce) then null else f.bounced_at end when 'complained' then f.complained_at when 'unsubscribed' then f.unsubscribed_at
          when 'opened' then f.opened_at when 'clicked' then f.clicked_at else f.answered_at end is not null
      ) and (not v_removed or not deed.is_removed(c.tenant_id))
      order by e.at, e.id, e.kind
      offset 0
    ) q
  ) n;
end
$$;
