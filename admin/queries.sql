-- The statements of operators. A test prepares each against the installed schema.

-- name: remove_subscription
select array[deed.remove_subscription($1::text, $2::text, $3::text, $4::text)];

-- name: remove_topic
select deed.remove_topic($1::text, $2::text, $3::text);

-- name: count_removal
select coalesce(subscription, ''), mode, door, waiting, claimed, aside, dead, blocked_keys, unread, at_least, workers
from deed.count_removal($1::text, $2::text);

-- name: removals
select topic, coalesce(name, ''), case when finished_at is not null then 'done' when waits then 'waits' else 'going' end, taken,
  removed_at, finished_at, actor, reason, n
from deed.removals
where n < $2::bigint
order by n desc
limit $1::int;

-- name: set_topic
select deed.set_topic($1::text, $2::text, $3::int, $4::text = 'key', make_interval(secs => $5::float8));

-- name: topic_mode
select t.mode from deed.topics t where t.topic = $1::text;

-- name: look_at_blocked
select next_id, next_subscription, id, subscription, topic, name, key, tenant_id::text, message_id::text, attempts, dead, due,
  coalesce(last_error, ''), since, greatest(extract(epoch from clock_timestamp() - since), 0)::float8, behind
from deed.look_at_blocked($1::bigint, $2::int, $3::int, $4::int, $5::int, $6::text);

-- name: oldest_partition
-- How long ago the oldest partition that has its content was closed.
select coalesce(extract(epoch from clock_timestamp() - (
  select min(o.opened_at) from deed.partitions o
  where o.n > (select min(p.n) from deed.partitions p where p.emptied_at is null)
)), 0)::float8;

-- name: horizon
-- Sessions of others show their times only to members of pg_read_all_stats.
select pg_sequence_last_value('deed.log_seq'),
  (
    select case when pg_snapshot_xmin(s) < pg_snapshot_xmax(s) then pg_snapshot_xmin(s)::text else '' end
    from pg_current_snapshot() s
  ),
  (
    select coalesce(extract(epoch from clock_timestamp() - min(held.since)), 0)::float8
    from (
      select a.xact_start as since from pg_stat_activity a
      where (a.backend_xid is not null or a.backend_xmin is not null) and a.pid <> pg_backend_pid()
      union all
      select x.prepared from pg_prepared_xacts x
    ) held
  );

-- name: held
select coalesce(deed.held(true, $1::text), '');

-- name: adopt_cluster
select coalesce(deed.adopt_cluster($1::text, $2::text, $3::text), '');

-- name: retention
select n, from_id, upto_id, state, opened_at, closed_at, bytes, unfinished,
  coalesce(extract(epoch from overdue), 0)::float8, kept_by, tried_at
from deed.retention();

-- name: status
select topic, subscription, pending, due, claimed, dead, delivered, oldest_due_seconds,
  parked, blocked_keys, lag, at_least, dead_at_least, delivered_at_least, lanes, lanes_held
from deed.look_at_topics($1::int);

-- name: oldest_pauses
select topic, subscription, worker, workers, why, since, coalesce(extract(epoch from clock_timestamp() - since), 0)::float8
from deed.oldest_pauses();

-- name: unattended
-- What nobody declared is the subscription 0's.
with asked as materialized (
  select n.topic, n.name, coalesce(u.id, 0) as id
  from unnest($1::text[], $2::text[]) n(topic, name)
  left join deed.subscriptions u on u.topic = n.topic and u.name = n.name
)
select q.topic, q.name
from asked q
where q.id in (
  select a.id
  from deed.unattended((select array_agg(s.id) from asked s), make_interval(secs => $3::float8)) a(id)
);

-- name: oldest_calls
select topic, subscription, id, message_id::text, messages, worker, since,
  greatest(extract(epoch from clock_timestamp() - since), 0)::float8
from deed.oldest_calls();

-- name: verify
select invariant, coalesce(subscription, ''), coalesce(message_id, 0), detail
from deed.verify();

-- name: look_begins
-- The clock, and whether the login reads the topics.
select clock_timestamp(), has_table_privilege('deed.topics', 'select');

-- name: log_extents
select from_id, last_id, upto_id from deed.log_extents();

-- name: look_by_number
select looked, above, oldest, id, slot, message_id::text, tenant_id::text, topic, key, type, content_type, headers::text, size, payload, created_at, process_after
from deed.look_by_number($1::bigint, $2::bigint, $3::int, $4::text, $5::text, $6::text::uuid, $7::timestamptz, $8::boolean);

-- name: look_by_topic
select looked, above, oldest, id, slot, message_id::text, tenant_id::text, topic, key, type, content_type, headers::text, size, payload, created_at, process_after
from deed.look_by_topic($1::text, $2::bigint, $3::int, $4::int, $5::text, $6::text::uuid, $7::timestamptz, $8::boolean);

-- name: look_at_kept
select looked, above, oldest, id, slot, message_id::text, tenant_id::text, topic, key, type, content_type, headers::text, size, payload, created_at, process_after
from deed.look_at_kept($1::bigint, $2::int, $3::int, $4::text, $5::text, $6::text::uuid, $7::timestamptz, $8::boolean);

-- name: snapshot
select pg_snapshot_xmin(s)::text, s::text from pg_current_snapshot() s;

-- name: messages_after
select l.id, deed.message_id(l.created_at, l.id)::text, l.tenant_id::text, l.topic, coalesce(l.key, ''), coalesce(l.type, ''),
  l.content_type, l.headers::text, octet_length(l.payload), case when $4::boolean then l.payload end, l.created_at, l.process_after
from (
  select g.*
  from deed.log g
  where g.xid >= $1::text::xid8
    and not pg_visible_in_snapshot(g.xid, $2::text::pg_snapshot)
    and ($3::text is null or g.topic = $3::text)
  limit $5::int
) l
order by l.id;

-- name: numbers_after
select min(l.id) - 1, max(l.id)
from deed.log l
where l.xid >= $1::text::xid8
  and not pg_visible_in_snapshot(l.xid, $2::text::pg_snapshot)
  and ($3::text is null or l.topic = $3::text);

-- name: tail_window
select upto, slots, ids
from deed.tail_window($1::bigint, $2::bigint, $3::text::pg_snapshot, $4::text::pg_snapshot, $5::text);

-- name: messages_at
select l.id, deed.message_id(l.created_at, l.id)::text, l.tenant_id::text, l.topic, coalesce(l.key, ''), coalesce(l.type, ''), l.content_type, l.headers::text,
  octet_length(l.payload), case when $3::boolean then l.payload end, l.created_at, l.process_after
from unnest($1::int[], $2::bigint[]) u(slot, id)
cross join lateral (
  select o.* from deed.log o where o.slot = u.slot and o.id = u.id offset 0
) l
order by l.id;

-- name: message_states
-- Of the topic's subscriptions, and of the one for topics that nobody declared.
select s.name, p.attempts, p.lost_claims, p.parked, p.ord, p.lease_until, coalesce(p.claimed_by, ''), p.dead_at,
  coalesce(p.last_error, ''), p.ord <= clock_timestamp(), p.lease_until > clock_timestamp()
from deed.subscriptions s
join deed.pending p on p.subscription = s.id and p.slot = $2::int and p.id = $1::bigint
where s.topic = $3::text or s.id = 0
order by s.name;

-- name: message_receipts
select coalesce(s.name, g.name || ' (removed)'), r.worker, r.claim, r.finished_at,
  coalesce(r.attempts[array_position(r.ids, $1::bigint)], 0) + case r.outcome when 'delivered' then 1 else 0 end,
  r.outcome, coalesce((
    select a.reason from deed.audit_log a
    where r.outcome = 'discarded' and a.subject_type = 'message' and a.subject_id = $1::bigint::text
      and a.action = 'discard' and a.details ->> 'subscription' = coalesce(s.name, g.name)
    order by a.n desc
    limit 1
  ), '')
from deed.receipts r
left join deed.subscriptions s on s.id = r.subscription
left join deed.removals g on g.subscription = r.subscription and g.name is not null
where coalesce(s.name, g.name) is not null and r.finished > 0 and int8range(r.min_id, r.max_id, '[]') @> $1::bigint and $1::bigint = any (r.ids)
order by r.finished_at;

-- name: message_pages
select subscription, state, coalesce(worker, ''), delivered_at, coalesce(lane, 0), coalesce(page, 0)
from deed.stream_states($1::bigint);

-- name: look_at_dead
select next_id, next_subscription, oldest, id, subscription, message_id::text, topic, name, key, type, tenant_id::text,
  attempts, lost_claims, dead_at, last_error
from deed.look_at_dead($1::bigint, $2::int, $3::int, $4::int, $5::int, $6::text, $7::text, $8::text::uuid, $9::text, $10::text, $11::bigint[],
  make_interval(secs => $12::float8), make_interval(secs => $13::float8));

-- name: count_dead
select topic, name, count(*), min(dead_at), max(dead_at)
from deed.dead_letters($1::text, $2::text, $3::text::uuid, $4::text, $5::text, $6::bigint[],
  make_interval(secs => $7::float8), make_interval(secs => $8::float8))
group by topic, name
order by topic, name;

-- name: redrive
select state, chosen, redriven, wait
from deed.redrive($9::text, $1::text, $2::text, $3::text::uuid, $4::text, $5::text, $6::bigint[],
  make_interval(secs => $7::float8), make_interval(secs => $8::float8), $10::int, $11::int, $12::text, $13::text);

-- name: cancel_redrive
select deed.cancel_redrive($1::text, $2::text, $3::text);

-- name: redrives
-- From the one named $1 on, which is left out; '' is the first page.
select request, state, chosen, redriven, coalesce(rate, 0), asked::text, actor, coalesce(reason, ''), started_at, finished_at
from deed.redrives
where (started_at, request) < (
  coalesce((select r.started_at from deed.redrives r where r.request = $1::text), case when $1::text = '' then 'infinity' else '-infinity' end::timestamptz), $1::text
)
order by started_at desc, request desc
limit $2::int;

-- name: known_redrive
select exists (select from deed.redrives r where r.request = $1::text);

-- name: discard
select deed.discard($1::bigint, $2::text, $3::text, $4::text);

-- name: reschedule
select deed.reschedule($1::bigint, $2::timestamptz, $3::text, $4::text, $5::text);

-- name: look_at_audit
select n, at, actor, login, action, subject_type, coalesce(subject_id, ''), coalesce(reason, ''), affected, coalesce(details::text, '{}')
from deed.look_at_audit($1::bigint, $2::int, $3::text, $4::boolean);

-- name: topics
select topic, mode, lanes, case when mode = 'stream' and ordered then 'key' else 'none' end, extract(epoch from retention)::float8, created_at
from deed.topics
where topic > $1::text and case when $2::text is null then not own or subscriptions <> '{}' else topic = $2::text end
order by topic
limit $3::int;

-- name: subscriptions
select s.topic, s.name, coalesce(s.max_attempts, 0), extract(epoch from s.lease)::float8, extract(epoch from s.backoff)::float8,
  s.start, s.created_at,
  exists (select from deed.backfills b where b.subscription = s.id and b.finished_at is not null), s.door
from deed.subscriptions s
where s.id <> 0 and s.topic = any ($1::text[])
order by s.topic, s.name;

-- name: set_subscription
select deed.set_subscription($1::text, $2::text, $3::int, make_interval(secs => $4::float8), make_interval(secs => $5::float8));

-- name: set_door
select deed.set_door($1::text, $2::text, $3::boolean);

-- name: settings
select strict_topics, max_payload, extract(epoch from dedup_window)::float8, single_tenant, installation::text,
  extract(epoch from retention)::float8, max_delivery, coalesce(environment, '')
from deed.settings;

-- name: set_settings
update deed.settings
set strict_topics = coalesce($1::boolean, strict_topics),
  max_payload = coalesce($2::int, max_payload),
  dedup_window = coalesce(make_interval(secs => $3::float8), dedup_window),
  retention = coalesce(make_interval(secs => $4::float8), retention),
  max_delivery = coalesce($5::int, max_delivery);
