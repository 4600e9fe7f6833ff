-- deed.look_by_number: the messages with numbers above p_from and up to p_upto that
-- match, newest first, at most p_limit; null matches all.
--
-- Each row says how many messages there were (looked), down to which number (above),
-- and when the oldest of them was published; where none matches, one row says it,
-- without an id. All that lies between is read, so the caller bounds the numbers. Without
-- statistics, too, it goes by the summaries of the pages (log_pN_id_idx), which no
-- other kind of plan reads.
create or replace function deed.look_by_number(
  p_from    bigint,
  p_upto    bigint,
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
set enable_indexscan = off
set jit = off
as $$
  with looked as materialized (
    select l.id, l.slot, l.tenant_id, l.topic, l.key, l.type, l.content_type, l.headers, l.payload, l.created_at, l.process_after
    from deed.log l
    where l.id > p_from and l.id <= p_upto
  ),
  said as (
    select count(*) as looked, min(l.created_at) as oldest from looked l
  )
  select s.looked, p_from, s.oldest, m.id, m.slot, deed.message_id(m.created_at, m.id), m.tenant_id, m.topic, coalesce(m.key, ''),
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
