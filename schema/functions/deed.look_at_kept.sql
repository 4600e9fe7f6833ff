-- deed.look_at_kept: what deed.look_by_topic is for the log, for the messages that
-- retention has kept of it (deed.kept): among the newest p_each up to p_upto.
create or replace function deed.look_at_kept(
  p_upto    bigint,
  p_each    int,
  p_limit   int,
  p_topic   text default null,
  p_key     text default null,
  p_tenant  uuid default null,
  p_after   timestamptz default null,
  p_payload boolean default false
) returns table (
  looked bigint, above bigint, oldest timestamptz, id bigint, slot int, message_id uuid, tenant_id uuid, topic text, key text,
  type text, content_type text, headers jsonb, size int, payload bytea, created_at timestamptz, process_after timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with looked as materialized (
    select k.id, k.slot, k.tenant_id, k.topic, k.key, k.type, k.content_type, k.headers, k.payload, k.created_at, k.process_after
    from deed.kept k
    where k.id <= p_upto
    order by k.id desc
    limit p_each
  ),
  said as (
    select count(*) as looked, case when count(*) = p_each then min(l.id) - 1 else 0 end as above, min(l.created_at) as oldest
    from looked l
  )
  select s.looked, s.above, s.oldest, m.id, m.slot, deed.message_id(m.created_at, m.id), m.tenant_id, m.topic, coalesce(m.key, ''),
    coalesce(m.type, ''), m.content_type, m.headers, octet_length(m.payload), case when p_payload then m.payload end, m.created_at,
    m.process_after
  from said s
  left join (
    select l.*
    from looked l
    where (p_topic is null or l.topic = p_topic)
      and (p_key is null or l.key = p_key)
      and (p_tenant is null or l.tenant_id = p_tenant)
      and (p_after is null or l.created_at >= p_after)
    order by l.id desc
    limit p_limit
  ) m on true
  order by m.id desc
$$;
