-- deed.blocked_keys: the keys of ordered streams that wait for a message, the
-- one that waits longest first: which message, why, since when, and how many
-- stand behind it (at most 10,000 are counted).
create or replace function deed.blocked_keys(
  p_topic text default null,
  p_limit int default 100
) returns table (
  topic text, subscription text, key text, tenant_id uuid, id bigint, message_id uuid, attempts int, dead boolean,
  due timestamptz, last_error text, since timestamptz, behind bigint
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  select s.topic, s.name, l.key, l.tenant_id, p.id, deed.message_id(l.created_at, l.id), p.attempts, p.dead_at is not null,
    case when p.dead_at is null then p.ord end, p.last_error, l.created_at,
    (
      select count(*)
      from (
        select from deed.pending f
        where f.subscription = p.subscription and f.key_hash = p.key_hash and f.parked
        limit 10000
      ) f
    )
  from deed.pending p
  join deed.subscriptions s on s.id = p.subscription
  join (
    select slot, id, tenant_id, created_at, key from deed.log
    union all
    select slot, id, tenant_id, created_at, key from deed.kept
  ) l on l.slot = p.slot and l.id = p.id
  where p.key_hash is not null and not p.parked and (p_topic is null or s.topic = p_topic)
  order by l.created_at, p.id
  limit p_limit
$$;
