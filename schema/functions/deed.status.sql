-- deed.status: counts per topic and subscription.
--
-- pending: not finished and not dead; due: of those, what could be delivered
-- now; claimed: under a live lease; parked: of those pending, what stands behind
-- another message of its key; delivered: finished, as far as records are kept.
-- Of a stream what it has still to read, lag, is pending and due; it is counted
-- up to 10,000 a lane (deed.lag), and at_least says that there may be more.
-- blocked_keys wait for a message; lanes_held of the lanes are some process's.
create or replace function deed.status() returns table (
  topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint,
  oldest_due_seconds double precision, parked bigint, blocked_keys bigint, lag bigint, at_least boolean,
  lanes bigint, lanes_held bigint
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
  with waiting as (
    select p.subscription, case when p.subscription = 0 then l.topic end as topic,
      count(*) filter (where p.dead_at is null) as pending,
      count(*) filter (where p.dead_at is null and not p.parked and p.ord <= now.at and (p.lease_until is null or p.lease_until <= now.at)) as due,
      count(*) filter (where p.lease_until > now.at) as claimed,
      count(*) filter (where p.dead_at is not null) as dead,
      count(*) filter (where p.dead_at is null and p.parked) as parked,
      count(*) filter (where p.key_hash is not null and not p.parked) as blocked_keys,
      min(p.ord) filter (where p.dead_at is null and not p.parked and p.ord <= now.at and (p.lease_until is null or p.lease_until <= now.at)) as oldest
    from deed.pending p
    cross join (select clock_timestamp() as at) now
    left join (
      select slot, id, topic from deed.log
      union all
      select slot, id, topic from deed.kept
    ) l on p.subscription = 0 and l.slot = p.slot and l.id = p.id
    group by 1, 2
  ),
  unread as (
    select g.subscription, g.behind, g.oldest
    from deed.lag(array(select s.id from deed.subscriptions s where s.since is not null), 10000) g
  ),
  held as (
    select n.subscription, count(*) as lanes, count(*) filter (where n.lease_until > clock_timestamp()) as held
    from deed.lanes n
    group by 1
  ),
  finished as (
    select f.subscription, null::text as topic, sum(f.delivered) as delivered
    from (
      select r.subscription, r.finished as delivered
      from deed.receipts r
      where r.subscription <> 0 and r.outcome = 'delivered'
      union all
      -- Lanes are numbered from 1, those that were replaced among them.
      select s.id, (
        select g.total from deed.progress g where g.subscription = s.id and g.lane = lane.no order by g.n desc limit 1
      )
      from deed.subscriptions s
      cross join lateral (
        select g.lane from deed.progress g where g.subscription = s.id order by g.lane desc limit 1
      ) last
      cross join lateral generate_series(1, last.lane) lane(no)
    ) f
    group by 1
    union all
    select 0, l.topic, count(*)
    from deed.receipts r
    cross join unnest(r.ids) i(id)
    join deed.log l on l.slot between 0 and 63 and l.id = i.id
    where r.subscription = 0 and r.outcome = 'delivered'
    group by 2
  ),
  named as (
    select s.id, s.topic, s.name from deed.subscriptions s where s.id <> 0
    union
    select 0, d.topic, 'default'
    from (
      select w.topic from waiting w where w.subscription = 0
      union
      select f.topic from finished f where f.subscription = 0
      union
      select t.topic from deed.topics t where t.subscriptions = '{}'
    ) d
    where d.topic is not null
  )
  select n.topic, n.name, coalesce(w.pending, 0) + coalesce(u.behind, 0), coalesce(w.due, 0) + coalesce(u.behind, 0),
    coalesce(w.claimed, 0), coalesce(w.dead, 0), coalesce(f.delivered, 0)::bigint,
    coalesce(extract(epoch from clock_timestamp() - least(w.oldest, u.oldest)), 0)::double precision,
    coalesce(w.parked, 0), coalesce(w.blocked_keys, 0), coalesce(u.behind, 0), coalesce(u.behind >= 10000, false),
    coalesce(h.lanes, 0), coalesce(h.held, 0)
  from named n
  left join waiting w on w.subscription = n.id and (n.id <> 0 or w.topic = n.topic)
  left join finished f on f.subscription = n.id and (n.id <> 0 or f.topic = n.topic)
  left join unread u on u.subscription = n.id
  left join held h on h.subscription = n.id
  order by n.topic, n.name
$$;
