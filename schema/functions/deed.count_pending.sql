-- deed.count_pending: how the messages stand that have a row of their own, for each
-- subscription that has any; of the subscription 0 for each topic.
--
-- Where there are more than a thousand, each kind is counted up to p_most, the
-- oldest first: at_least says that more may wait, dead_at_least that more may be
-- dead. oldest is since when the oldest of those counted is due; if all of them are
-- claimed, since when the last of them was: none behind it is older.
--
-- For the subscription 0 up to three times as many are counted if that is all there
-- is, else p_most: the log has to be asked for the topic of each. Where there are
-- more, a row of the topic '' says so for topics that have no row.
create or replace function deed.count_pending(
  p_most int
) returns table (
  subscription int, topic text, pending bigint, due bigint, claimed bigint, parked bigint, blocked_keys bigint, dead bigint,
  oldest timestamptz, at_least boolean, dead_at_least boolean
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
  with now as materialized (
    select clock_timestamp() as at
  ),
  few as materialized (
    select s.id, c.*
    from now
    cross join deed.subscriptions s
    cross join lateral (
      select count(*) as n, count(*) filter (where p.dead_at is null) as pending,
        count(*) filter (where p.dead_at is null and not p.parked and p.ord <= now.at and p.is_free) as due,
        count(*) filter (where p.lease_until > now.at) as claimed,
        count(*) filter (where p.dead_at is null and p.parked) as parked,
        count(*) filter (where p.key_hash is not null and not p.parked) as blocked,
        count(*) filter (where p.dead_at is not null) as dead,
        min(p.ord) filter (where p.dead_at is null and not p.parked and p.ord <= now.at and p.is_free) as oldest
      from (
        select p.dead_at, p.parked, p.ord, p.lease_until, p.key_hash, p.lease_until is null or p.lease_until <= now.at as is_free
        from deed.pending p
        where p.subscription = s.id
        limit least(p_most, 1000)
      ) p
    ) c
    where s.id <> 0 and c.n > 0
  ),
  many as (
    select f.id, r.n as ready, r.due, r.claimed, r.oldest, k.parked, k.blocked, d.n as dead,
      r.n >= p_most or k.n >= p_most as at_least, d.n >= p_most as dead_at_least
    from few f
    cross join now
    cross join lateral (
      select count(*) as n, count(*) filter (where p.ord <= now.at and p.is_free) as due,
        count(*) filter (where p.lease_until > now.at) as claimed,
        coalesce(min(p.ord) filter (where p.ord <= now.at and p.is_free), case when count(*) >= p_most and max(p.ord) <= now.at then max(p.ord) end) as oldest
      from (
        select p.ord, p.lease_until, p.lease_until is null or p.lease_until <= now.at as is_free
        from deed.pending p
        where p.subscription = f.id and p.dead_at is null and not p.parked
        order by p.ord, p.id
        limit p_most
      ) p
    ) r
    cross join lateral (
      select count(*) as n, count(*) filter (where p.dead_at is null and p.parked) as parked, count(*) filter (where p.key_hash is not null and not p.parked) as blocked
      from (
        -- Of a stream, by number: by key each row would be on a page of its own.
        select p.dead_at, p.parked, p.key_hash
        from deed.pending p
        where p.subscription = f.id and exists (select from deed.pending o where o.subscription = f.id and o.key_hash is not null)
        order by p.id
        limit p_most
      ) p
    ) k
    cross join lateral (
      select count(*) as n
      from (
        select from deed.pending p where p.subscription = f.id and p.dead_at is not null order by p.id limit p_most
      ) p
    ) d
    where f.n >= least(p_most, 1000)
  ),
  bound as materialized (
    select case when d.n <= 3 * p_most then 3 * p_most else p_most end as most
    from (
      select count(*) as n from (select from deed.pending p where p.subscription = 0 limit 3 * p_most + 1) p
    ) d
  ),
  undeclared as (
    select l.topic, count(*) filter (where p.dead_at is null) as pending,
      count(*) filter (where p.dead_at is null and p.ord <= p.at and p.is_free) as due,
      count(*) filter (where p.lease_until > p.at) as claimed, count(*) filter (where p.dead_at is not null) as dead,
      min(p.ord) filter (where p.dead_at is null and p.ord <= p.at and p.is_free) as oldest,
      bool_or(p.waiting >= p.most) as at_least, bool_or(p.died >= p.most) as dead_at_least
    from (
      select p.*, now.at, bound.most, p.lease_until is null or p.lease_until <= now.at as is_free,
        count(*) filter (where p.dead_at is null) over () as waiting, count(*) filter (where p.dead_at is not null) over () as died
      from now
      cross join bound
      cross join lateral (
        (
          select p.slot, p.id, p.ord, p.lease_until, p.dead_at
          from deed.pending p
          where p.subscription = 0 and p.dead_at is null and not p.parked
          order by p.ord, p.id
          limit bound.most
        )
        union all
        (
          select p.slot, p.id, p.ord, p.lease_until, p.dead_at
          from deed.pending p
          where p.subscription = 0 and p.dead_at is not null
          order by p.id
          limit bound.most
        )
      ) p
    ) p
    cross join lateral (
      select g.topic from deed.log g where g.slot = p.slot and g.id = p.id
      union all
      select k.topic from deed.kept k where k.slot = p.slot and k.id = p.id
      limit 1
    ) l
    group by l.topic
  )
  select f.id, '', f.pending, f.due, f.claimed, f.parked, f.blocked, f.dead, f.oldest, false, false
  from few f
  where f.n < least(p_most, 1000)
  union all
  select m.id, '', m.ready + m.parked, m.due, m.claimed, m.parked, m.blocked, m.dead, m.oldest, m.at_least, m.dead_at_least
  from many m
  union all
  select 0, u.topic, u.pending, u.due, u.claimed, 0, 0, u.dead, u.oldest, u.at_least, u.dead_at_least
  from undeclared u
  union all
  -- Of topics of which nothing was among those counted.
  select 0, '', 0, 0, 0, 0, 0, 0, null, bool_or(u.at_least), bool_or(u.dead_at_least)
  from undeclared u
  having bool_or(u.at_least) or bool_or(u.dead_at_least)
$$;
