-- The statements of the Go side. Each is prepared by New, so that one that
-- does not fit the installed schema fails there and in CI, not at first use.

-- name: subscribe
select subscription, made, coalesce(max_attempts, 0), extract(epoch from lease)::float8, start, mode, extract(epoch from backoff)::float8
from deed.subscribe($1::text, $2::text, $3::text, $4::int, make_interval(secs => $5::float8), make_interval(secs => $6::float8));

-- name: remove_subscription
select array[deed.remove_subscription($1::text, $2::text, $3::text, $4::text)];

-- name: remove_topic
select deed.remove_topic($1::text, $2::text, $3::text);

-- name: remove_step
select state, total from deed.remove_step($1::bigint, $2::int);

-- name: count_removal
select coalesce(subscription, ''), mode, door, waiting, claimed, aside, dead, blocked_keys, unread, at_least, workers
from deed.count_removal($1::text, $2::text);

-- name: removals
select topic, coalesce(name, ''), case when finished_at is not null then 'done' when waits then 'waits' else 'going' end, taken,
  removed_at, finished_at, actor, reason
from deed.removals
order by n desc
limit $1::int;

-- name: open_removals
select coalesce(array_agg(o.n order by o.n), '{}')
from (select r.n from deed.removals r where r.finished_at is null order by r.n limit 1000) o;

-- name: removed
select coalesce(array_agg(r.subscription), '{}') from deed.removals r where r.subscription = any ($1::int[]) and r.name is not null;

-- name: removed_at
select max(r.removed_at) from deed.removals r where r.topic = $1::text and r.name = $2::text;

-- name: claim
select subscription, id, claim, attempts, lost_claims, tenant_id, topic,
  coalesce(key, ''), coalesce(type, ''), content_type, headers::text, payload, created_at, ord
from deed.claim($1::text, $2::text, $3::int, p_subscription => $4::text, p_floor => $5::timestamptz,
  p_lease => make_interval(secs => $6::float8));

-- name: a_minute_ago
select clock_timestamp() - interval '1 minute';

-- name: next_claimable
select deed.next_claimable($1::int, $2::timestamptz, $3::timestamptz);

-- name: extend
select deed.extend($1::int, $2::bigint, $3::bigint[], make_interval(secs => $4::float8));

-- name: finish
select deed.finish($1::int, $2::bigint, $3::bigint[], p_failed => $4::int);

-- name: fail
select id, attempts, dead, process_after
from deed.fail($1::int, $2::bigint, $3::bigint[], $4::text[],
  (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($5::float8[]) with ordinality a(seconds, n)),
  $6::text[]);

-- name: watch
select seq, ready, streams, window_n, coalesce(window_h::text, ''), slots, low, late::text[], coalesce(whole, false),
  subscription, place_slot, slot, id, tenant_id, key, type, content_type, headers::text, payload, created_at, due
from deed.watch($1::bigint, $2::int[], $3::timestamptz[], $4::bigint, $5::text::xid8, $6::int[], $7::int[]);

-- name: take_lanes
select subscription, lane, slot_from, slot_upto, ordered, fence, give_back, takeovers, last_window
from deed.take_lanes($1::text::uuid, $2::text, $3::int[], $4::boolean, $5::int);

-- name: release_lane
select deed.release_lane($1::int, $2::int, $3::bigint);

-- name: pause_lane
select deed.pause_lane($1::int, $2::int, $3::bigint);

-- name: leave_relays
select deed.leave_relays($1::text::uuid, p_release => $2::boolean);

-- name: window
select coalesce((select w.h::text from deed.windows w where w.n = $1::bigint), '');

-- name: lane_position
select l.takeovers, g.n, g.from_window, f.h::text, coalesce(g.to_window, 0), coalesce(t.h::text, ''), g.slot, g.id
from deed.lanes l
cross join lateral (
  select g.n, g.from_window, g.to_window, g.slot, g.id
  from deed.progress g
  where g.subscription = l.subscription and g.lane = l.lane
  order by g.n desc
  limit 1
) g
join deed.windows f on f.n = g.from_window
left join deed.windows t on t.n = g.to_window
where l.subscription = $1::int and l.lane = $2::int and l.fence = $3::bigint;

-- name: blocked_hashes
-- From one key to the next: many messages may be parked behind each.
with recursive keys(hash) as (
  (
    select p.key_hash from deed.pending p
    where p.subscription = $1::int and p.key_hash is not null
    order by p.key_hash
    limit 1
  )
  union all
  select (
    select p.key_hash from deed.pending p
    where p.subscription = $1::int and p.key_hash > k.hash
    order by p.key_hash
    limit 1
  )
  from keys k
  where k.hash is not null
)
select k.hash from keys k
where (k.hash >> 56) & 63 between $2::int % 64 and $3::int % 64;

-- name: page
select place_slot, slot, id, tenant_id, key, type, content_type, headers::text, payload, created_at, due
from deed.page($1::int, $2::int, $3::int, $4::bigint, $5::text::xid8, $6::bigint, $7::text::xid8, $8::int, $9::bigint, $10::int,
  $11::bigint, $12::text[]::xid8[]);

-- name: finish_page
select n, dead
from deed.finish_page($1::int, $2::int, $3::bigint, $4::bigint, $5::text, $6::bigint, $7::text::xid8, $8::bigint, $9::text::xid8,
  $10::int, $11::bigint, $12::int, $13::bigint, $14::bigint, $15::text, $16::bigint[], $17::int[], $18::bigint[], $19::text[],
  (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($20::float8[]) with ordinality a(seconds, n)),
  $21::text[]);

-- name: attend
select head, key_hash, id, claim, attempts, lost_claims, tenant_id, topic,
  coalesce(key, ''), coalesce(type, ''), content_type, headers::text, payload, created_at
from deed.attend($1::int, $2::text, $3::int, $4::int[], $5::int[], make_interval(secs => $6::float8));

-- name: lock_keys
select deed.lock_keys($1::int, $2::bigint[]);

-- name: release_keys
select deed.release_keys($1::int, $2::bigint[]);

-- name: heal_keys
select deed.heal_keys($1::int, $2::int[], $3::int[]);

-- name: declare_topic
select made, mode, lanes, ordered, extract(epoch from retention)::float8
from deed.declare_topic($1::text, $2::text, $3::int, $4::boolean, make_interval(secs => $5::float8));

-- name: set_topic
select deed.set_topic($1::text, $2::text, $3::int, $4::boolean, make_interval(secs => $5::float8));

-- name: blocked_keys
select topic, subscription, key, tenant_id::text, id, message_id::text, attempts, dead, due, coalesce(last_error, ''), since,
  greatest(extract(epoch from clock_timestamp() - since), 0)::float8, behind
from deed.blocked_keys($1::text, $2::int);

-- name: next_due
select deed.next_due($1::int);

-- name: owing
select b.subscription from deed.backfills b
where b.subscription = any ($1::int[]) and b.finished_at is null;

-- name: backfill
select added, finished from deed.backfill($1::int, $2::int);

-- name: keep_partitions
select deed.keep_partitions();

-- name: partitions_ahead
select coalesce(max(p.n), -1) - pg_sequence_last_value('deed.log_seq') / 68719476736
from deed.partitions p;

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

-- name: purge_keys
select deed.purge_keys($1::int);

-- name: held
select coalesce(deed.held(true, $1::text), '');

-- name: adopt_cluster
select coalesce(deed.adopt_cluster($1::text, $2::text, $3::text), '');

-- name: retention
select n, from_id, upto_id, state, opened_at, closed_at, bytes, unfinished,
  coalesce(extract(epoch from overdue), 0)::float8, kept_by, tried_at
from deed.retention();

-- name: retention_step
select n, did, messages from deed.retention_step($1::int);

-- name: empty_partitions
-- One detaches at a time; only the owner may.
select p.n
from deed.partitions p
join pg_class c on c.relname = 'log_p' || p.n and c.relnamespace = 'deed'::regnamespace
join pg_inherits i on i.inhrelid = c.oid
where p.emptied_at is not null and p.dropped_at is null
  and (p.tried_at is null or p.tried_at < clock_timestamp() - interval '1 minute')
  and pg_has_role(c.relowner, 'usage')
  and not exists (select from pg_inherits o where o.inhparent = i.inhparent and o.inhdetachpending);

-- name: purge_history
select what, removed from deed.purge_history($1::int);

-- name: purge_kept
select removed, next_slot, next_id from deed.purge_kept($1::int, $2::bigint, $3::int);

-- name: unfinished
select deed.unfinished($1::int[], make_interval(secs => $2::float8));

-- name: behind
select exists (select from deed.lag($1::int[], 1) l where l.behind > 0);

-- name: status
select topic, subscription, pending, due, claimed, dead, delivered, oldest_due_seconds,
  parked, blocked_keys, lag, at_least, lanes, lanes_held
from deed.status($1::int);

-- name: report_calls
select deed.report_calls($1::text::uuid, $2::text, $3::int[], $4::bigint[], $5::text[]::uuid[], $6::int[],
  (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($7::float8[]) with ordinality a(seconds, n)));

-- name: oldest_calls
select topic, subscription, id, message_id::text, messages, worker, since,
  greatest(extract(epoch from clock_timestamp() - since), 0)::float8
from deed.oldest_calls();

-- name: verify
select invariant, coalesce(subscription, ''), coalesce(message_id, 0), detail
from deed.verify();

-- name: messages
select id, deed.message_id(created_at, id)::text, tenant_id::text, topic, coalesce(key, ''), coalesce(type, ''),
  content_type, headers::text, octet_length(payload), case when $8::boolean then payload end, created_at, process_after
from (
  select id, created_at, tenant_id, topic, key, type, content_type, headers, payload, process_after from deed.log
  union all
  select id, created_at, tenant_id, topic, key, type, content_type, headers, payload, process_after from deed.kept
) l
where ($1::text is null or topic = $1::text)
  and ($2::text is null or key = $2::text)
  and ($3::text is null or tenant_id = $3::text::uuid)
  and ($4::float8 is null or created_at >= statement_timestamp() - make_interval(secs => $4::float8))
  and id > $5::bigint and id <= $6::bigint
order by id desc
limit $7::int;

-- name: snapshot
select pg_snapshot_xmin(s)::text, s::text from pg_current_snapshot() s;

-- name: messages_after
select id, deed.message_id(created_at, id)::text, tenant_id::text, topic, coalesce(key, ''), coalesce(type, ''),
  content_type, headers::text, octet_length(payload), case when $4::boolean then payload end, created_at, process_after
from deed.log
where xid >= $1::text::xid8
  and not pg_visible_in_snapshot(xid, $2::text::pg_snapshot)
  and ($3::text is null or topic = $3::text)
order by id;

-- name: message_states
select s.name, p.attempts, p.lost_claims, p.parked, p.ord, p.lease_until, coalesce(p.claimed_by, ''), p.dead_at,
  coalesce(p.last_error, ''), p.ord <= clock_timestamp(), p.lease_until > clock_timestamp()
from deed.pending p
join deed.subscriptions s on s.id = p.subscription
where p.id = $1::bigint
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

-- name: dead
select id, deed.message_id(created_at, id)::text, topic, name, coalesce(key, ''), coalesce(type, ''),
  tenant_id::text, attempts, lost_claims, dead_at, last_error
from deed.dead_letters($1::text, $2::text, $3::text::uuid, $4::text, $5::text, $6::bigint[],
  make_interval(secs => $7::float8), make_interval(secs => $8::float8))
order by id desc, name
limit $9::int;

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
select request, state, chosen, redriven, coalesce(rate, 0), asked::text, actor, coalesce(reason, ''), started_at, finished_at
from deed.redrives
order by started_at desc
limit $1::int;

-- name: discard
select deed.discard($1::bigint, $2::text, $3::text, $4::text);

-- name: reschedule
select deed.reschedule($1::bigint, $2::timestamptz, $3::text, $4::text, $5::text);

-- name: audit
select n, at, actor, login, action, subject_type, coalesce(subject_id, ''), coalesce(reason, ''), affected, coalesce(details::text, '{}')
from deed.audit_log
where ($1::text is null or subject_id = $1::text)
  and ($3::boolean or $1::text is not null or subject_type <> 'delivery'
    or (action not in ('reserve', 'attempt', 'reconcile', 'doubt', 'hold', 'purge') and not (action = 'settle' and subject_id is null)))
order by n desc
limit $2::int;

-- name: topics
select topic, mode, lanes, ordered, extract(epoch from retention)::float8, created_at
from deed.topics
order by topic;

-- name: subscriptions
select s.topic, s.name, coalesce(s.max_attempts, 0), extract(epoch from s.lease)::float8, extract(epoch from s.backoff)::float8,
  s.start, s.created_at,
  exists (select from deed.backfills b where b.subscription = s.id and b.finished_at is not null), s.door
from deed.subscriptions s
where s.id <> 0
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
