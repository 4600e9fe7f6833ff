-- deed.status: counts per topic and subscription.
--
-- pending: not finished and not dead; due: of those, what could be claimed now;
-- claimed: under a live lease; delivered: finished, as far as receipts are kept.
create or replace function deed.status() returns table (
  topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint,
  oldest_due_seconds double precision
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
  finished as (
    select r.subscription, null::text as topic, sum(r.finished) as delivered
    from deed.receipts r
    where r.subscription <> 0
    group by 1
    union all
    select 0, l.topic, count(*)
    from deed.receipts r
    cross join unnest(r.ids) i(id)
    join deed.log l on l.slot between 0 and 63 and l.id = i.id
    where r.subscription = 0
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
  select n.topic, n.name, coalesce(w.pending, 0), coalesce(w.due, 0), coalesce(w.claimed, 0), coalesce(w.dead, 0),
    coalesce(f.delivered, 0)::bigint, coalesce(extract(epoch from clock_timestamp() - w.oldest), 0)::double precision
  from named n
  left join waiting w on w.subscription = n.id and (n.id <> 0 or w.topic = n.topic)
  left join finished f on f.subscription = n.id and (n.id <> 0 or f.topic = n.topic)
  order by n.topic, n.name
$$;
