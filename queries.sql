-- The statements of the Go side. Each is prepared by New, so that one that
-- does not fit the installed schema fails there and in CI, not at first use.

-- name: subscribe
select subscription, made, coalesce(max_attempts, 0), extract(epoch from lease)::float8, start, mode, extract(epoch from backoff)::float8
from deed.subscribe($1::text, $2::text, $3::text, $4::int, make_interval(secs => $5::float8), make_interval(secs => $6::float8));

-- name: removed_at
select max(r.removed_at) from deed.removals r where r.topic = $1::text and r.name = $2::text;

-- name: declare_topic
select made, mode, lanes, ordered, extract(epoch from retention)::float8
from deed.declare_topic($1::text, $2::text, $3::int, $4::boolean, make_interval(secs => $5::float8));

-- name: backlogs
select b.subscription from deed.backfills b
where b.subscription = any ($1::int[]) and b.finished_at is null;

-- name: backfill
-- A step, and where it began: steps that begin elsewhere each time get on.
select f.added, f.finished, concat_ws('/', b.window_n, b.reached, b.slot, b.id, b.scanned, b.late_id)
from deed.backfill($1::int, $2::int) f
left join deed.backfills b on b.subscription = $1::int;

-- name: stored
select s.id from unnest($1::text[], $2::text[]) n(topic, name) join deed.subscriptions s using (topic, name);

-- name: unfinished
select deed.unfinished($1::int[], make_interval(secs => $2::float8));

-- name: behind
select exists (select from deed.lag($1::int[], 1) l where l.behind > 0);

-- name: report_pauses
select deed.report_pauses($1::text::uuid, $2::text, $3::int[], $4::text[],
  (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($5::float8[]) with ordinality a(seconds, n)));

-- name: report_calls
select deed.report_calls($1::text::uuid, $2::text, $3::int[], $4::bigint[], $5::text[]::uuid[], $6::int[],
  (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($7::float8[]) with ordinality a(seconds, n)));
