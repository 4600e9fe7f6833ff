-- deed.look_at_topics: counts per topic and subscription, as deed.status tells them,
-- at a cost that does not grow with what there is.
--
-- What waits is counted up to 10,000 a subscription (at_least: there may be more),
-- and so is what is dead (dead_at_least). What was delivered is added up in the
-- background (deed.tally), and of what came since then 30,000 receipts are looked
-- at (delivered_at_least).
create or replace function deed.look_at_topics(
  p_most int default 100
) returns table (
  topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint,
  oldest_due_seconds double precision, parked bigint, blocked_keys bigint, lag bigint, at_least boolean, dead_at_least boolean,
  delivered_at_least boolean, lanes bigint, lanes_held bigint
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
  with waiting as materialized (
    select w.subscription, w.topic, w.pending, w.due, w.claimed, w.parked, w.blocked_keys, w.dead, w.oldest, w.at_least, w.dead_at_least
    from deed.count_pending(10000) w
  ),
  behind as materialized (
    select u.subscription, u.behind, u.oldest, u.at_least
    from deed.count_unread(array(select s.id from deed.subscriptions s where s.since is not null), 10000, false) u
  ),
  -- What is not counted to the end may have older ones in another lane.
  unread as (
    select b.subscription, b.behind, least(b.oldest, o.oldest) as oldest, b.at_least
    from behind b
    left join deed.lag(array(select m.subscription from behind m where m.at_least), 1) o on o.subscription = b.subscription
  ),
  held as (
    select n.subscription, count(*) as lanes, count(*) filter (where n.lease_until > clock_timestamp()) as held
    from deed.lanes n
    group by 1
  ),
  -- Not added up yet.
  lately as materialized (
    select r.subscription, r.outcome, r.finished, r.gone, r.topics
    from deed.receipts r
    where r.n > (select t.upto_n from deed.tallied t)
    order by r.n
    limit 30000
  ),
  finished as materialized (
    select f.subscription, f.topic, sum(f.delivered)::bigint as delivered
    from (
      select d.subscription, d.topic, d.delivered from deed.delivered d
      union all
      select r.subscription, '', r.finished + r.gone from lately r where r.subscription <> 0 and r.outcome = 'delivered'
      union all
      select 0, t.topic, t.n::bigint
      from lately r, lateral jsonb_each_text(r.topics) t(topic, n)
      where r.subscription = 0 and r.outcome = 'delivered'
      union all
      -- Lanes are numbered from 1, those that were replaced among them.
      select s.id, '', (
        select g.total from deed.progress g where g.subscription = s.id and g.lane = lane.no order by g.n desc limit 1
      )
      from deed.subscriptions s
      cross join lateral (
        select g.lane from deed.progress g where g.subscription = s.id order by g.lane desc limit 1
      ) last
      cross join lateral generate_series(1, last.lane) lane(no)
      where s.since is not null or s.read_since is not null -- a stream, or one that was
    ) f
    group by 1, 2
  ),
  short as (
    select count(*) >= 30000 or count(*) filter (where l.subscription = 0 and l.finished > 0 and l.topics is null) > 0 as of_delivered
    from lately l
  ),
  named as (
    select s.id, s.topic, s.name, '' as part from deed.subscriptions s where s.id <> 0
    union
    -- Of a topic that is declared by now: what no subscription of it asked for.
    select 0, d.topic, case when o.topic is null then 'default' else '(undeclared)' end, d.topic
    from (
      select w.topic from waiting w where w.subscription = 0 and w.topic <> ''
      union
      select f.topic from finished f where f.subscription = 0
      union
      select t.topic from deed.topics t where t.subscriptions = '{}' and not t.own
    ) d
    left join (select distinct s.topic from deed.subscriptions s where s.id <> 0) o on o.topic = d.topic
  ),
  -- A topic that nobody declared, and of which nothing is among those counted.
  beyond as (
    select bool_or(w.at_least) as at_least, bool_or(w.dead_at_least) as dead_at_least from waiting w where w.subscription = 0 and w.topic = ''
  ),
  counted as (
    select n.topic, n.name, coalesce(w.pending, 0) + coalesce(u.behind, 0) as pending, coalesce(w.due, 0) + coalesce(u.behind, 0) as due,
      coalesce(w.claimed, 0) as claimed, coalesce(w.dead, 0) as dead, coalesce(f.delivered, 0) as delivered,
      least(w.oldest, u.oldest) as oldest,
      coalesce(w.parked, 0) as parked, coalesce(w.blocked_keys, 0) as blocked_keys, coalesce(u.behind, 0) as lag,
      coalesce(w.at_least, u.at_least, n.id = 0 and b.at_least, false) or coalesce(u.at_least, false) as at_least,
      coalesce(w.dead_at_least, n.id = 0 and b.dead_at_least, false) as dead_at_least,
      coalesce(h.lanes, 0) as lanes, coalesce(h.held, 0) as held
    from named n
    -- By equality, which is hashed: very many topics share the subscription 0.
    left join waiting w on w.subscription = n.id and w.topic = n.part
    left join finished f on f.subscription = n.id and f.topic = n.part
    left join unread u on u.subscription = n.id
    left join held h on h.subscription = n.id
    left join beyond b on true
  ),
  first as (
    select c.topic
    from counted c
    group by c.topic
    order by sum(c.dead) > 0 desc, min(c.oldest) nulls last, sum(c.pending) desc, c.topic
    limit p_most
  ),
  listed as (
    select c.*, f.topic is null as other from counted c left join first f on f.topic = c.topic
  )
  select l.topic, l.name, l.pending, l.due, l.claimed, l.dead, l.delivered,
    coalesce(extract(epoch from clock_timestamp() - l.oldest), 0)::double precision, l.parked, l.blocked_keys, l.lag, l.at_least,
    l.dead_at_least, (select s.of_delivered from short s), l.lanes, l.held
  from (
    select 1 as part, l.topic, l.name, l.pending, l.due, l.claimed, l.dead, l.delivered, l.oldest, l.parked, l.blocked_keys, l.lag,
      l.at_least, l.dead_at_least, l.lanes, l.held
    from listed l
    where not l.other
    union all
    select 2, '(others)', '(others)', sum(l.pending)::bigint, sum(l.due)::bigint, sum(l.claimed)::bigint, sum(l.dead)::bigint,
      sum(l.delivered)::bigint, min(l.oldest), sum(l.parked)::bigint, sum(l.blocked_keys)::bigint, sum(l.lag)::bigint,
      bool_or(l.at_least), bool_or(l.dead_at_least), sum(l.lanes)::bigint, sum(l.held)::bigint
    from listed l
    where l.other
    having count(*) > 0
  ) l
  order by l.part, l.topic, l.name
$$;
