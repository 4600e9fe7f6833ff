-- m10_recovery.outbox: the messages of the doors, as seed 003's table shows them.
--
-- event_type is the topic, aggregate_id the key; aggregate_type is null for what
-- was published through another door. Messages that a person has discarded are
-- not shown. The first door stands by itself, in the order of the ids, so that
-- the oldest of it are read and no more; most installations have no other.
create schema if not exists m10_recovery;

create or replace view m10_recovery.outbox with (security_invoker = true) as
(
  select p.id, l.aggregate_type, l.key as aggregate_id, l.topic as event_type,
    deed.payload_json(l.content_type, l.payload) as payload, l.created_at, null::timestamptz as processed_at,
    p.attempts as retry_count, p.process_after, p.claimed_at, p.claimed_by
  from deed.pending p
  cross join lateral (
    select * from deed.log where slot = p.slot and id = p.id
    union all
    select * from deed.kept where slot = p.slot and id = p.id
  ) l
  where p.subscription = (select (deed.doors())[1])
  order by p.id
)
union all
select p.id, l.aggregate_type, l.key, l.topic, deed.payload_json(l.content_type, l.payload), l.created_at,
  null::timestamptz, p.attempts, p.process_after, p.claimed_at, p.claimed_by
from deed.pending p
cross join lateral (
  select * from deed.log where slot = p.slot and id = p.id
  union all
  select * from deed.kept where slot = p.slot and id = p.id
) l
where p.subscription = any ((select (deed.doors())[2:])::int[]) and (select cardinality(deed.doors()) > 1)
  and p.subscription <> (select (deed.doors())[1]) -- says the same to the planner's estimate
union all
select f.id, f.aggregate_type, f.key, f.topic, deed.payload_json(f.content_type, f.payload), f.created_at,
  f.finished_at, f.attempts, f.process_after, f.claimed_at, f.worker
from deed.finished f;
