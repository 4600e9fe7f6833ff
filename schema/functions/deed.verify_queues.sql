-- deed.verify_queues: the part of deed.verify that is about messages: what is in the log against
-- what waits and what is finished. In one snapshot with the statement that calls it; its cost
-- grows with the log. Of partitions that have gone, or are going, it asks nothing but what is not finished.
create or replace function deed.verify_queues() returns table (
  invariant text, subscription int, message_id bigint, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
  with subs as (
    select s.id, s.topic, t.slot_base, s.start, s.list_version, s.since, s.read_since,
      s.id = 0 or b.finished_at is not null as settled, w.cur as start_snapshot,
      w.restored_id, greatest(w.h, pg_snapshot_xmax(w.cur)) as foreign_xid,
      r.cur as read_snapshot, r.restored_id as read_id, r.restored_h as read_h,
      coalesce((
        select max(g.list_version) from deed.removals g where g.topic = s.topic and g.whole and g.start = 'beginning'
      ), 0) as anew
    from deed.subscriptions s
    left join deed.topics t on t.topic = s.topic
    left join deed.backfills b on b.subscription = s.id
    left join deed.windows w on w.n = s.start_window
    left join deed.windows r on r.n = s.read_window
  ),
  -- The partitions that deed.retention_step has begun with.
  gone as materialized (
    select coalesce(array_agg(p.n::bigint) filter (where p.read_window is not null), '{}') as ns, max(p.read_window) as read_window
    from deed.partitions p
  ),
  content as (
    select l.* from deed.log l
    where l.id / 68719476736 <> all (select unnest(g.ns) from gone g)
      -- Of a tenant that is being removed nothing is owed.
      and l.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
  ),
  live as (
    select s.topic, min(s.list_version) as since from deed.subscriptions s where s.id <> 0 group by s.topic
  ),
  -- What waits for those that were removed is taken away bit by bit.
  removed as materialized (
    select r.subscription from deed.removals r where r.name is not null
  ),
  finished as materialized (
    select r.subscription, i.id, count(*) as times
    from deed.receipts r
    cross join unnest(r.ids) i(id)
    group by r.subscription, i.id
  ),
  owed as (
    select s.id as subscription, l.id
    from content l
    join subs s on s.topic = l.topic
    where (s.since is null or l.slot < 64 or l.list_version < s.since) -- else a stream reads it
      -- Of a topic of its name that was removed nothing is owed.
      and case when l.slot < 64 then l.list_version >= s.anew else l.slot / 64 * 64 = s.slot_base end
      and (l.list_version >= s.list_version
        or (s.settled and case
          when s.read_snapshot is not null and l.slot >= 64
            then not (pg_visible_in_snapshot(l.xid, s.read_snapshot) or (l.id <= s.read_id and l.xid >= s.read_h))
          else s.start = 'beginning' or not (
            pg_visible_in_snapshot(l.xid, s.start_snapshot) or (l.id <= s.restored_id and l.xid >= s.foreign_xid)
          )
        end))
    union all
    -- Before its topic was declared, unless a subscription took it over.
    select 0, l.id
    from content l
    left join (
      select s.topic, min(s.list_version) as since, max(s.list_version) filter (where s.start = 'beginning') as taken_over
      from (
        select o.topic, o.list_version, o.start from deed.subscriptions o where o.id <> 0
        union all
        select r.topic, r.list_version, r.start from deed.removals r where r.name is not null
      ) s
      group by s.topic
    ) d on d.topic = l.topic
    left join live v on v.topic = l.topic
    where l.slot < 64
      and (d.taken_over is null or l.list_version >= d.taken_over)
      and (v.topic is null or l.list_version < v.since)
    union all
    -- Since its topic, a queue, has no subscription.
    select 0, l.id
    from content l
    join deed.topics t on t.slot_base = l.slot / 64 * 64
    left join live v on v.topic = t.topic
    where v.topic is null and t.mode = 'queue' and l.list_version >= t.list_version
  )
  select 'unfinished message without a due time or a live claim', p.subscription, p.id,
    format('due %s, lease until %s', p.ord, p.lease_until)
  from deed.pending p
  where p.dead_at is null
    and (p.ord is null or not isfinite(p.ord) or p.lease_until > clock_timestamp() + interval '25 hours'
      or num_nulls(p.claim, p.claimed_at, p.claimed_by, p.lease_until) not in (0, 4))
  union all
  select 'pending row contradicts itself', p.subscription, p.id,
    format('%s attempts, %s lost claims, dead since %s with claim %s', p.attempts, p.lost_claims, p.dead_at, p.claim)
  from deed.pending p
  where p.attempts < 0 or p.lost_claims < 0 or (p.dead_at is not null and (num_nonnulls(p.claim, p.claimed_at, p.claimed_by, p.lease_until) > 0 or p.last_error is null))
  union all
  select 'headers are not an object', null, l.id, jsonb_typeof(l.headers)
  from deed.log l
  where jsonb_typeof(l.headers) <> 'object'
  union all
  select 'finished message still pending', p.subscription, p.id, 'it has a receipt and a pending row'
  from deed.pending p
  join finished f on f.subscription = p.subscription and f.id = p.id
  union all
  select 'two live claims on one message', p.subscription, p.id, format('%s rows are pending for it', count(*))
  from deed.pending p
  group by p.subscription, p.id
  having count(*) > 1
  union all
  select 'two messages of a key stand free', p.subscription, max(p.id), format('%s of one key, from %s to %s', count(*), min(p.id), max(p.id))
  from deed.pending p
  where p.key_hash is not null and not p.parked
  group by p.subscription, p.key_hash
  having count(*) > 1
  union all
  select 'message lost between content and state', o.subscription, o.id, 'it has neither a pending row nor a receipt'
  from owed o
  left join deed.pending p on p.subscription = o.subscription and p.id = o.id
  left join finished f on f.subscription = o.subscription and f.id = o.id
  where p.id is null and f.id is null
  union all
  select 'state without content', e.subscription, e.id, 'the log has no such message'
  from (
    select p.subscription, p.id from deed.pending p
    where p.subscription not in (select r.subscription from removed r)
    union
    select f.subscription, f.id from finished f
    where f.id / 68719476736 <> all (select unnest(g.ns) from gone g)
  ) e
  left join (
    select o.id from deed.log o
    union all
    select k.id from deed.kept k
  ) l on l.id = e.id
  where l.id is null
  union all
  select 'message finished twice', f.subscription, f.id, format('%s receipts name it', f.times)
  from finished f
  left join subs s on s.id = f.subscription
  where f.times > 1
    -- after a restore a stream reads some again
    and not (coalesce(s.since, s.read_since) is not null and f.id <= (select max(w.restored_id) from deed.windows w))
  union all
  select 'receipt does not add up', r.subscription, null, format('receipt %s says %s messages from %s to %s and names %s', r.n, r.finished, r.min_id, r.max_id, cardinality(r.ids))
  from deed.receipts r
  where r.finished <> cardinality(r.ids)
    or (r.finished > 0 and (r.min_id is distinct from (select min(i) from unnest(r.ids) i)
      or r.max_id is distinct from (select max(i) from unnest(r.ids) i)))
$$;
