-- deed.look_at_dead: the dead letters that match, newest first, from (p_upto,
-- p_upto_subscription) on downwards, at most p_limit; null matches all.
--
-- The newest p_each are read: of each subscription of p_topic; or without a topic of
-- all, or those of p_ids. Of topics that nobody declared p_each_undeclared are, since
-- only the log says which topic each is of. Each row says
-- how many those were (looked), where the next look goes on (next_id,
-- next_subscription; next_id is 0 if all was read), and when the first of them died
-- (oldest); where none matches, one row says it, without an id.
create or replace function deed.look_at_dead(
  p_upto              bigint,
  p_upto_subscription int,
  p_each              int,
  p_each_undeclared   int,
  p_limit             int,
  p_topic             text default null,
  p_subscription      text default null,
  p_tenant            uuid default null,
  p_type              text default null,
  p_error             text default null,
  p_ids               bigint[] default null,
  p_older             interval default null,
  p_newer             interval default null
) returns table (
  looked bigint, next_id bigint, next_subscription int, oldest timestamptz,
  id bigint, subscription int, message_id uuid, topic text, name text, key text, type text, tenant_id uuid,
  attempts int, lost_claims int, dead_at timestamptz, last_error text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with looked as materialized (
    select a.*
    from (
      select -1 as part, p.id, p.subscription, p.slot, p.tenant_id, p.ord_at, p.attempts, p.lost_claims, p.dead_at, p.last_error
      from deed.pending p
      where p_topic is null and p_ids is null and p.dead_at is not null and (p.id, p.subscription) <= (p_upto, p_upto_subscription)
      order by p.id desc, p.subscription desc
      limit p_each
    ) a
    union all
    select b.*
    from deed.subscriptions s
    cross join lateral (
      select s.id as part, p.id, p.subscription, p.slot, p.tenant_id, p.ord_at, p.attempts, p.lost_claims, p.dead_at, p.last_error
      from deed.pending p
      where p.subscription = s.id and p.dead_at is not null and p.id <= p_upto
        and (p.id < p_upto or p.subscription <= p_upto_subscription)
      order by p.subscription desc, p.id desc
      limit case when s.id = 0 then p_each_undeclared else p_each end
    ) b
    where p_ids is null and p_topic is not null and (s.topic = p_topic or s.id = 0) and (p_subscription is null or s.name = p_subscription)
    union all
    select -2, p.id, p.subscription, p.slot, p.tenant_id, p.ord_at, p.attempts, p.lost_claims, p.dead_at, p.last_error
    from unnest(p_ids) i(id)
    join deed.pending p on p.id = i.id and p.dead_at is not null and (p.id, p.subscription) <= (p_upto, p_upto_subscription)
  ),
  -- The last of each part that may have more: below the highest of them something
  -- may be missing.
  ends as (
    select distinct on (l.part) l.id, l.subscription
    from looked l
    where l.part <> -2 and l.part in (select f.part from looked f group by f.part having count(*) = case when f.part = 0 then p_each_undeclared else p_each end)
    order by l.part, l.id, l.subscription
  ),
  whole as (
    select e.id, e.subscription from ends e order by e.id desc, e.subscription desc limit 1
  ),
  said as (
    select count(*) as looked, coalesce(max(w.id), 0) as next_id, coalesce(max(w.subscription) - 1, 0) as next_subscription,
      min(l.dead_at) as oldest
    from looked l
    left join whole w on true
  )
  select d.looked, d.next_id, d.next_subscription, d.oldest, m.id, m.subscription, m.message_id, m.topic, m.name, m.key, m.type,
    m.tenant_id, m.attempts, m.lost_claims, m.dead_at, m.last_error
  from said d
  left join (
    select l.id, l.subscription, deed.message_id(coalesce(c.created_at, l.ord_at), l.id) as message_id,
      coalesce(c.topic, s.topic) as topic, s.name, coalesce(c.key, '') as key, coalesce(c.type, '') as type, l.tenant_id, l.attempts,
      l.lost_claims, l.dead_at, l.last_error
    from (
      select l.*
      from looked l
      where (p_tenant is null or l.tenant_id = p_tenant)
        and (p_error is null or strpos(lower(l.last_error), lower(p_error)) > 0)
        and (p_older is null or l.dead_at <= now() - p_older)
        and (p_newer is null or l.dead_at >= now() - p_newer)
      order by l.id desc, l.subscription desc
    ) l
    join deed.subscriptions s on s.id = l.subscription and (p_subscription is null or s.name = p_subscription)
    left join lateral (
      select g.topic, g.key, g.type, g.created_at from deed.log g where g.slot = l.slot and g.id = l.id
      union all
      select k.topic, k.key, k.type, k.created_at from deed.kept k where k.slot = l.slot and k.id = l.id
      limit 1
    ) c on true
    where (p_topic is null or coalesce(c.topic, s.topic) = p_topic)
      and (p_type is null or c.type = p_type)
      and (l.id, l.subscription) >= (select w.id, w.subscription from whole w union all select 0, 0 limit 1)
    order by l.id desc, l.subscription desc
    limit p_limit
  ) m on true
  order by m.id desc, m.subscription desc
$$;
