-- deed.look_at_blocked: the keys of ordered streams that wait for a message, the
-- oldest message first, from (p_from, p_from_subscription) on, at most p_limit:
-- which message, why, since when, and how many stand behind it (at most p_behind
-- are counted). p_topic null: of all.
--
-- The oldest p_each are read. Each row says from where on the next look goes
-- (next_id, next_subscription; next_id is 0 if all was read); where none is of the
-- topic, one row says it, without an id.
create or replace function deed.look_at_blocked(
  p_from              bigint,
  p_from_subscription int,
  p_each              int,
  p_limit             int,
  p_behind            int,
  p_topic             text default null
) returns table (
  next_id bigint, next_subscription int, id bigint, subscription int, topic text, name text, key text, tenant_id uuid, message_id uuid,
  attempts int, dead boolean, due timestamptz, last_error text, since timestamptz, behind bigint
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with looked as materialized (
    select p.id, p.subscription, p.slot, p.key_hash, p.tenant_id, p.attempts, p.dead_at, p.ord, p.last_error
    from deed.pending p
    where p.key_hash is not null and not p.parked and (p.id, p.subscription) >= (p_from, p_from_subscription)
    order by p.id, p.subscription
    limit p_each
  ),
  said as (
    select l.id as next_id, l.subscription + 1 as next_subscription
    from looked l
    where (select count(*) from looked) = p_each
    order by l.id desc, l.subscription desc
    limit 1
  )
  select coalesce((select s.next_id from said s), 0), coalesce((select s.next_subscription from said s), 0), m.id, m.subscription,
    m.topic, m.name, m.key, m.tenant_id, deed.message_id(m.created_at, m.id), m.attempts, m.dead_at is not null,
    case when m.dead_at is null then m.ord end, m.last_error, m.created_at,
    (
      select count(*)
      from (
        select from deed.pending f
        where f.subscription = m.subscription and f.key_hash = m.key_hash and f.parked
        limit p_behind
      ) f
    )
  from (select 1) one
  left join (
    select l.*, s.topic, s.name, c.key, c.created_at
    from looked l
    join deed.subscriptions s on s.id = l.subscription and (p_topic is null or s.topic = p_topic)
    left join lateral (
      select g.key, g.created_at from deed.log g where g.slot = l.slot and g.id = l.id
      union all
      select k.key, k.created_at from deed.kept k where k.slot = l.slot and k.id = l.id
      limit 1
    ) c on true
    order by l.id, l.subscription
    limit p_limit
  ) m on true
  order by m.id, m.subscription
$$;
