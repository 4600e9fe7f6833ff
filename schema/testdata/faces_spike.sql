-- A spike of the two published faces over deed's own store, to be sure that the
-- layout can carry them: not installed by anything but a test.
create schema app;
create schema m10_recovery;

-- The unfinished half and the finished half.
create view public.outbox as
select deed.message_id(l.created_at, l.id) as id, l.tenant_id, l.topic, convert_from(l.payload, 'UTF8')::jsonb as payload,
  l.created_at, null::timestamptz as delivered_at, p.claimed_by::uuid as processing_token, p.attempts
from deed.pending p
join deed.subscriptions s on s.id = p.subscription and s.door
join deed.log l on l.slot = p.slot and l.id = p.id
union all
select deed.message_id(l.created_at, l.id), l.tenant_id, l.topic, convert_from(l.payload, 'UTF8')::jsonb,
  l.created_at, r.finished_at, null::uuid, coalesce(r.attempts[i.n], 0) + 1
from deed.receipts r
join deed.subscriptions s on s.id = r.subscription and s.door
cross join unnest(r.ids) with ordinality i(id, n)
join deed.log l on l.id = i.id;

create function public.outbox_insert() returns trigger
language plpgsql as $$
begin
  perform deed.publish_many(
    array[new.topic], array[convert_to(new.payload::text, 'UTF8')],
    p_tenants => array[new.tenant_id], p_created_at => array[new.created_at]
  );
  return new;
end
$$;
create trigger outbox_insert instead of insert on public.outbox for each row execute function public.outbox_insert();

create function app.outbox_claim(p_limit int, p_token uuid, p_tenant uuid) returns setof public.outbox
language plpgsql as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_claim bigint := nextval('deed.claim_seq');
begin
  return query
  with free as (
    select p.subscription, p.id
    from deed.pending p
    join deed.subscriptions s on s.id = p.subscription and s.door
    join deed.log l on l.slot = p.slot and l.id = p.id
    where p.dead_at is null and not p.parked and p.ord <= v_now
      and (p.lease_until is null or p.lease_until <= v_now)
      and (p_tenant is null or p.tenant_id = p_tenant)
    order by l.created_at, p.id
    limit p_limit
    for update of p skip locked
  ),
  claimed as (
    update deed.pending p
    set claim = v_claim, claimed_at = v_now, claimed_by = p_token::text, lease_until = v_now + interval '5 minutes',
      lost_claims = p.lost_claims + case when p.claim is null then 0 else 1 end
    from free f
    where p.subscription = f.subscription and p.id = f.id
    returning p.slot, p.id, p.attempts
  )
  select deed.message_id(l.created_at, l.id), l.tenant_id, l.topic, convert_from(l.payload, 'UTF8')::jsonb,
    l.created_at, null::timestamptz, p_token, c.attempts
  from claimed c
  join deed.log l on l.slot = c.slot and l.id = c.id
  order by l.created_at, l.id;
end
$$;

create function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns int
language sql as $$
  select coalesce(sum(deed.finish(b.subscription, b.claim, b.ids)), 0)::int
  from (
    select p.subscription, p.claim, array_agg(p.id) as ids
    from unnest(p_ids) u(id)
    join deed.pending p on p.id = deed.message_seq(u.id) and p.claimed_by = p_token::text
    group by p.subscription, p.claim
  ) b
$$;

create view m10_recovery.outbox as
select l.id, l.aggregate_type, l.key as aggregate_id, l.topic as event_type, convert_from(l.payload, 'UTF8')::jsonb as payload,
  l.created_at, null::timestamptz as processed_at, p.attempts as retry_count, p.process_after, p.claimed_at, p.claimed_by
from deed.pending p
join deed.subscriptions s on s.id = p.subscription and s.door
join deed.log l on l.slot = p.slot and l.id = p.id
union all
select l.id, l.aggregate_type, l.key, l.topic, convert_from(l.payload, 'UTF8')::jsonb,
  l.created_at, r.finished_at, coalesce(r.attempts[i.n], 0), l.process_after, r.claimed_at, r.worker
from deed.receipts r
join deed.subscriptions s on s.id = r.subscription and s.door
cross join unnest(r.ids) with ordinality i(id, n)
join deed.log l on l.id = i.id;

create function m10_recovery.publish_outbox(p_aggregate_type text, p_aggregate_id text, p_event_type text, p_payload jsonb) returns bigint
language sql as $$
  select id from deed.publish_many(
    array[p_event_type], array[convert_to(p_payload::text, 'UTF8')],
    p_keys => array[p_aggregate_id], p_aggregate_types => array[p_aggregate_type]
  )
$$;
