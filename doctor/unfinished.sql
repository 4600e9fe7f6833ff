-- What was begun and has not ended.

-- name: backfills
-- A backfill waits for the transactions that were running when its window was
-- opened, in whatever database.
with running as (
  select x.xid, coalesce(
    (
      select format('pid %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'))
      from pg_catalog.pg_stat_activity a
      where a.backend_xid = x.xid::xid
      limit 1
    ),
    (select format('the prepared transaction %L', p.gid) from pg_catalog.pg_prepared_xacts p where p.transaction = x.xid::xid),
    format('transaction %s', x.xid)
  ) as name
  from pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()) x(xid)
)
select s.topic || '/' || s.name, extract(epoch from pg_catalog.clock_timestamp() - k.since)::float8,
  b.scanned,
  coalesce((
    select string_agg(o.name, ', ' order by o.xid)
    from (select r.xid, r.name from running r where r.xid < w.h order by r.xid limit 5) o
  ), ''),
  -- It joins the queue's list (deed.join_list).
  s.list_version is null and exists (
    select from deed.topics t
    join deed.relanings r on r.subscription = any (t.subscriptions) and r.mode = 'queue'
    where t.topic = s.topic
  )
from deed.backfills b
join deed.subscriptions s on s.id = b.subscription
cross join lateral (select coalesce(b.began_at, s.created_at) as since) k
left join deed.windows w on w.n = b.window_n
where b.finished_at is null and k.since < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by k.since
limit 20;

-- name: changes
-- A change of a stream's lanes or mode waits for each lane to stop.
select s.topic || '/' || s.name, extract(epoch from pg_catalog.clock_timestamp() - r.asked_at)::float8,
  case r.mode when 'queue' then 'a queue' else format('a stream of %s lanes', r.lanes) end,
  s.topic, (select count(*) from deed.lanes l where l.subscription = r.subscription and l.paused_at is null),
  (select count(*) from deed.lanes l where l.subscription = r.subscription and l.paused_at is null and l.lease_until > pg_catalog.clock_timestamp())
from deed.relanings r
join deed.subscriptions s on s.id = r.subscription
where r.asked_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by r.asked_at, s.topic, s.name
limit 20;

-- name: removals
-- A removal waits for the transactions that began before it, in whatever database.
with running as (
  select x.xid, coalesce(
    (
      select format('pid %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'))
      from pg_catalog.pg_stat_activity a
      where a.backend_xid = x.xid::xid
      limit 1
    ),
    (select format('the prepared transaction %L', p.gid) from pg_catalog.pg_prepared_xacts p where p.transaction = x.xid::xid),
    format('transaction %s', x.xid)
  ) as name
  from pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()) x(xid)
)
select r.what, r.is_tenant, extract(epoch from pg_catalog.clock_timestamp() - r.removed_at)::float8,
  coalesce((
    select pg_catalog.string_agg(w.name, ', ')
    from (select u.name from running u where r.waits and u.xid < r.upto order by u.xid limit 5) w
  ), '')
from (
  select pg_catalog.concat_ws('/', o.topic, o.name) as what, false as is_tenant, o.removed_at, o.waits, o.upto, o.finished_at from deed.removals o
  union all
  select 'tenant ' || t.tenant_id, true, t.asked_at, t.waits, t.upto, t.finished_at from deed.tenant_removals t
) r
where r.finished_at is null and r.removed_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1::float8)
order by r.removed_at
limit 20;
