-- deed.status: counts per topic and subscription.
--
-- pending: not finished and not dead; due: of those, what could be delivered
-- now; claimed: under a live lease; parked: of those pending, what stands behind
-- another message of its key; delivered: finished, as far as records are kept.
-- Of a stream what it has still to read, lag, is pending and due; it is counted
-- up to 10,000 a lane (deed.lag), and at_least says that there may be more.
-- blocked_keys wait for a message; lanes_held of the lanes are some process's.
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
    select s.id, s.topic, s.name, '' as part from deed.subscriptions s where s.id <> 0
    union
    select 0, d.topic, 'default', d.topic
    from (
      select w.topic from waiting w where w.subscription = 0
      union
      select f.topic from finished f where f.subscription = 0
      union
      select t.topic from deed.topics t where t.subscriptions = '{}'
    ) d
    where d.topic is not null
  ),
  counted as (
    select n.topic, n.name, coalesce(w.pending, 0) + coalesce(u.behind, 0) as pending, coalesce(w.due, 0) + coalesce(u.behind, 0) as due,
      coalesce(w.claimed, 0) as claimed, coalesce(w.dead, 0) as dead, coalesce(f.delivered, 0)::bigint as delivered,
      least(w.oldest, u.oldest) as oldest,
      coalesce(w.parked, 0) as parked, coalesce(w.blocked_keys, 0) as blocked_keys, coalesce(u.behind, 0) as lag,
      coalesce(u.behind >= 10000, false) as at_least, coalesce(h.lanes, 0) as lanes, coalesce(h.held, 0) as held
    from named n
    -- By equality, which is hashed: very many topics share the subscription 0.
    left join waiting w on w.subscription = n.id and coalesce(w.topic, '') = n.part
    left join finished f on f.subscription = n.id and coalesce(f.topic, '') = n.part
    left join unread u on u.subscription = n.id
    left join held h on h.subscription = n.id
  ),
  ranked as (
    select r.topic, row_number() over (order by r.dead desc, r.oldest nulls last, r.pending desc, r.topic) as place
    from (
      select c.topic, sum(c.dead) > 0 as dead, min(c.oldest) as oldest, sum(c.pending) as pending from counted c group by c.topic
    ) r
  ),
  listed as (
    select c.*, r.place > p_most as other from counted c join ranked r on r.topic = c.topic
  )
  select l.topic, l.name, l.pending, l.due, l.claimed, l.dead, l.delivered,
    coalesce(extract(epoch from clock_timestamp() - l.oldest), 0)::double precision, l.parked, l.blocked_keys, l.lag, l.at_least,
    l.lanes, l.held
  from (
    select 1 as part, l.topic, l.name, l.pending, l.due, l.claimed, l.dead, l.delivered, l.oldest, l.parked, l.blocked_keys, l.lag,
      l.at_least, l.lanes, l.held
    from listed l
    where not l.other
    union all
    select 2, '(others)', '(others)', sum(l.pending)::bigint, sum(l.due)::bigint, sum(l.claimed)::bigint, sum(l.dead)::bigint,
      sum(l.delivered)::bigint, min(l.oldest), sum(l.parked)::bigint, sum(l.blocked_keys)::bigint, sum(l.lag)::bigint,
      bool_or(l.at_least), sum(l.lanes)::bigint, sum(l.held)::bigint
    from listed l
    where l.other
    having count(*) > 0
  ) l
  order by l.part, l.topic, l.name
$$;
