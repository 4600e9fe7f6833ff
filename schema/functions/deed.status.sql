-- deed.status: counts per topic and subscription.
--
-- pending: not finished and not dead; due: of those, what could be delivered
-- now; claimed: under a live lease; parked: of those pending, what stands behind
-- another message of its key; delivered: finished, also what retention has
-- forgotten since (of topics that nobody declared as long as some are delivered).
-- Of a stream what it has still to read, lag, is pending and due. blocked_keys wait
-- for a message; lanes_held of the lanes are some process's. What waits or is dead
-- is counted up to 10,000 of each kind and subscription; at_least says that there may
-- be more.
-- p_most topics are listed, by name: those with dead messages first, then those
-- that have been due for longest, then those with most to do. The others are
-- summed up in the row (others), which is no topic's name.
create or replace function deed.status(
  p_most int default 100
) returns table (
  topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint,
  oldest_due_seconds double precision, parked bigint, blocked_keys bigint, lag bigint, at_least boolean,
  lanes bigint, lanes_held bigint
)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select t.topic, t.subscription, t.pending, t.due, t.claimed, t.dead, t.delivered, t.oldest_due_seconds, t.parked, t.blocked_keys,
    t.lag, t.at_least or t.dead_at_least or t.delivered_at_least, t.lanes, t.lanes_held
  from deed.look_at_topics(p_most) t
$$;
