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
  select b.topic, b.name, b.key, b.tenant_id, b.id, b.message_id, b.attempts, b.dead, b.due, b.last_error, b.since, b.behind
  from deed.look_at_blocked(0, 0, case when p_topic is null then p_limit else 2147483647 end, p_limit, 10000, p_topic) b
  where b.id is not null
  order by b.id, b.subscription
$$;
