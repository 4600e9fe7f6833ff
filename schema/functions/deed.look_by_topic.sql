-- deed.look_by_topic: a topic's messages with numbers up to p_upto that match, newest
-- first, at most p_limit; null matches all.
--
-- Of each slot in which the topic's messages are, or with a key of the one in which
-- that is, the newest p_each are read. Each row says how many those were (looked),
-- above which number nothing is missing of them (0: all was read), and when the
-- oldest above it was published; there the next look goes on. Where none matches,
-- one row says it, without an id. The slots are those of the topic as
-- it is declared, those of topics of its name that were removed lately, and those
-- that all topics share which nobody declared.
create or replace function deed.look_by_topic(
  p_topic   text,
  p_upto    bigint,
  p_each    int,
  p_limit   int,
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
  with bases as (
    select t.slot_base from deed.topics t where t.topic = p_topic
    union
    select r.slot_base
    from (select r.slot_base from deed.removals r where r.topic = p_topic and r.whole order by r.n desc limit 3) r
    union
    select 0
  ),
  looked as materialized (
    select l.slot, l.id, l.tenant_id, l.topic, l.key, l.type, l.content_type, l.headers, l.payload, l.created_at, l.process_after
    from bases b
    cross join generate_series(0, 63) s(n)
    cross join lateral (
      select l.*
      from deed.log l
      where l.slot = b.slot_base + s.n and l.id <= p_upto
      order by l.slot desc, l.id desc
      limit p_each
    ) l
    where p_key is null or s.n = deed.slot(0, p_key, 0)
  ),
  whole as (
    select coalesce(max(f.lowest) - 1, 0) as above
    from (select min(l.id) as lowest from looked l group by l.slot having count(*) = p_each) f
  ),
  said as (
    select count(*) as looked, min(w.above) as above, min(l.created_at) filter (where l.id > w.above) as oldest
    from whole w
    left join looked l on true
  )
  select s.looked, s.above, s.oldest, m.id, m.slot, deed.message_id(m.created_at, m.id), m.tenant_id, m.topic, coalesce(m.key, ''), coalesce(m.type, ''),
    m.content_type, m.headers, octet_length(m.payload), case when p_payload then m.payload end, m.created_at, m.process_after
  from said s
  left join (
    select l.*
    from looked l
    where l.id > (select w.above from whole w)
      and l.topic = p_topic
      and (p_key is null or l.key = p_key)
      and (p_tenant is null or l.tenant_id = p_tenant)
      and (p_after is null or l.created_at >= p_after)
    order by l.id desc
    limit p_limit
  ) m on true
  order by m.id desc
$$;
