-- The statements of claims. deed.New prepares each, so that one that does not fit
-- the installed schema fails there and in CI, not at first use.

-- name: removed
select coalesce(array_agg(r.subscription), '{}') from deed.removals r where r.subscription = any ($1::int[]) and r.name is not null;

-- name: claim
select subscription, ord, claim, attempts, lost_claims, topic,
  id, tenant_id, coalesce(key, ''), coalesce(type, ''), content_type, headers::text, payload, created_at
from deed.claim($1::text, $2::text, $3::int, p_subscription => $4::text, p_floor => $5::timestamptz,
  p_lease => make_interval(secs => $6::float8), p_tenant => $7::uuid);

-- name: other_tenant
-- Of the next ten thousand messages the first of another tenant's.
select p.tenant_id
from (
  select p.tenant_id, p.ord, p.id, p.lease_until from deed.pending p
  where p.subscription = $1::int and p.dead_at is null and not p.parked and p.ord <= now()
  order by p.ord, p.id
  limit 10000
) p
where p.tenant_id <> all ($2::uuid[]) and (p.lease_until is null or p.lease_until <= now())
order by p.ord, p.id
limit 1;

-- name: a_minute_ago
select clock_timestamp() - interval '1 minute';

-- name: next_claimable
select deed.next_claimable($1::int, $2::timestamptz, $3::timestamptz);

-- name: extend
select deed.extend($1::int, $2::bigint, $3::bigint[], make_interval(secs => $4::float8));

-- name: unrenewed
-- Those that deed.extend has passed over just now: what it has renewed lasts for the whole lease.
select coalesce(array_agg(p.id), '{}')
from deed.pending p
where p.subscription = $1::int and p.claim = $2::bigint and p.id = any ($3::bigint[]) and p.lease_until < clock_timestamp() + make_interval(secs => $4::float8 * 2 / 3);

-- name: finish
select deed.finish($1::int, $2::bigint, $3::bigint[], p_failed => $4::int);

-- name: fail
select id, attempts, dead, process_after
from deed.fail($1::int, $2::bigint, $3::bigint[], $4::text[],
  (select array_agg(make_interval(secs => a.seconds) order by a.n) from unnest($5::float8[]) with ordinality a(seconds, n)),
  $6::text[]);

-- name: next_due
select deed.next_due($1::int);
