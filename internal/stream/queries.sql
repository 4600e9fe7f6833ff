-- The statements of streams' readers. deed.New prepares each, so that one that does
-- not fit the installed schema fails there and in CI, not at first use.

-- name: watch
-- The first row has the news and no message; each that follows, if whole, has a
-- message and no news. What a row has not is empty.
select coalesce(seq, 0), coalesce(ready, '{}'), coalesce(streams, '{}'),
  coalesce(window_n, 0), coalesce(window_h::text, ''), slots, low, late::text[], coalesce(whole, false),
  coalesce(subscription, 0), coalesce(place_slot, 0), coalesce(slot, 0), coalesce(due, false),
  coalesce(id, 0), coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), coalesce(key, ''), coalesce(type, ''),
  coalesce(content_type, ''), headers::text, payload, coalesce(created_at, to_timestamp(0))
from deed.watch(
  p_seq => $1::bigint, p_subscriptions => $2::int[], p_floors => $3::timestamptz[],
  p_window => $4::bigint, p_window_h => $5::text::xid8, p_slot_from => $6::int[], p_slot_upto => $7::int[]);

-- name: take_lanes
select subscription, lane, slot_from, slot_upto, ordered, fence, give_back, takeovers, last_window
from deed.take_lanes($1::text::uuid, $2::text, $3::int[], $4::boolean, $5::int,
  array(select make_interval(secs => l.seconds) from unnest($6::float8[]) with ordinality l(seconds, n) order by l.n));

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
select hash from deed.keys_aside($1::int, array[$2::int], array[$3::int]) k(hash);

-- name: page
select place_slot, slot, due,
  id, tenant_id, coalesce(key, ''), coalesce(type, ''), content_type, headers::text, payload, created_at
from deed.page(
  p_subscription => $1::int, p_slot_from => $2::int, p_slot_upto => $3::int,
  p_from => $4::bigint, p_from_h => $5::text::xid8, p_to => $6::bigint, p_to_h => $7::text::xid8,
  p_slot => $8::int, p_id => $9::bigint, p_limit => $10::int, p_low => $11::bigint, p_late => $12::text[]::xid8[]);

-- name: finish_page
-- p_was is the row that this one follows, as the function compares it.
select n, dead
from deed.finish_page(
  p_subscription => $1::int, p_lane => $2::int, p_fence => $3::bigint,
  p_n => $4::bigint, p_was => concat_ws('/', $5::bigint, $6::bigint, $7::int, $8::bigint),
  p_from => $9::bigint, p_from_h => $10::text::xid8, p_to => $11::bigint, p_to_h => $12::text::xid8,
  p_slot => $13::int, p_id => $14::bigint,
  p_messages => $15::int, p_min => $16::bigint, p_max => $17::bigint, p_worker => $18::text,
  p_ids => $19::bigint[], p_slots => $20::int[], p_hashes => $21::bigint[], p_errors => $22::text[],
  p_after => (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($23::float8[]) with ordinality a(seconds, n)),
  p_outcomes => $24::text[]);

-- name: attend
select head, key_hash, claim, attempts, lost_claims, topic,
  id, tenant_id, coalesce(key, ''), coalesce(type, ''), content_type, headers::text, payload, created_at
from deed.attend($1::int, $2::text, $3::int, $4::int[], $5::int[], make_interval(secs => $6::float8), $7::int);

-- name: lock_keys
select deed.lock_keys($1::int, $2::bigint[]);

-- name: release_keys
select deed.release_keys($1::int, $2::bigint[]);

-- name: heal_keys
select deed.heal_keys($1::int, $2::int[], $3::int[]);
