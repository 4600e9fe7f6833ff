-- deed.verify_streams: the part of deed.verify that is about streams: what their
-- lanes' records say, against what the log and the pending rows hold.
--
-- Each lane is added up for itself, also those that others have replaced: from
-- the first place between two windows past everything that retention, or the removal of a
-- tenant, has removed, up to where it stands, be that within a window. A lane whose records
-- have gone up to there is added up from its oldest one, and so is one of a
-- stream that ended before deed kept track of that. Of those that were removed
-- nothing is owed, and nothing is added up. While a tenant is being removed its messages
-- may have been read or not; when they are taken out of the log, it is added up from the
-- window that shows all of them. In one snapshot with the
-- statement that calls it; it reads deed.progress and the log once, whatever
-- the number of lanes.
create or replace function deed.verify_streams() returns table (
  invariant text, subscription int, message_id bigint, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
  with gone as materialized (
    select max(p.read_window) as read_window from deed.partitions p
  ),
  -- Lanes that are younger than the last tenant's removal have met nothing of it.
  taken_out as materialized (
    select max(r.read_window) as read_window, case when bool_and(r.finished_at is not null) then max(r.finished_at) end as over_at
    from deed.tenant_removals r
    where r.read_window is not null
  ),
  removed as materialized (
    select r.subscription from deed.removals r where r.name is not null
  ),
  lanes as materialized (
    select l.subscription, l.lane, l.slot_from, l.slot_upto, l.kept_from, s.since, l.fence, true as is_live
    from deed.lanes l
    left join deed.subscriptions s on s.id = l.subscription
    where l.subscription not in (select r.subscription from removed r)
    union all
    select f.subscription, f.lane, f.slot_from, f.slot_upto, f.kept_from, f.since, null, false
    from deed.former_lanes f
    where f.subscription not in (select r.subscription from removed r)
  ),
  pages as materialized (
    select g.*,
      row_number() over w as place,
      lead(g.n) over w is null as is_last,
      lag(g.n) over w as was_n, lag(g.total) over w as was_total,
      lag(g.from_window) over w as was_from, lag(g.to_window) over w as was_to, lag(g.slot) over w as was_slot, lag(g.id) over w as was_id
    from deed.progress g
    where g.subscription not in (select r.subscription from removed r)
    window w as (partition by g.subscription, g.lane order by g.n)
  ),
  ends as (
    select g.* from pages g where g.is_last
  ),
  begins as (
    select g.subscription, g.lane, min(g.n) as n
    from pages g
    join deed.windows w on w.n = g.from_window
    cross join gone o
    cross join taken_out r
    where (g.to_window is null or g.n = 0) and (o.read_window is null or g.from_window >= o.read_window)
      and (r.read_window is null or g.from_window >= r.read_window or (g.n = 0 and g.finished_at > r.over_at))
    group by g.subscription, g.lane
  ),
  -- From where to where each lane has read, slot by slot.
  places as materialized (
    select e.subscription, e.lane, a.lane_slot, l.since, e.to_window is null as between_windows,
      case when e.slot >= 0 then 2 else e.slot + 2 end as part, case when e.slot >= 1073741824 then e.slot - 1073741824 else e.slot end as slot, e.id,
      b.cur as b_cur, b.upper as b_upper, b.restored_id as b_id, b.restored_h as b_h,
      f.base as f_base, f.cur as f_cur, f.upper as f_upper, f.restored_id as f_id, f.restored_h as f_h,
      t.cur as t_cur, t.upper as t_upper, t.restored_id as t_id, t.restored_h as t_h,
      e.slot between 0 and 1073741823 and e.id > f.base and (select w.low = f.base from deed.window_late(f.n, f.h, t.n, t.h) w) as late_first
    from ends e
    join lanes l on l.subscription = e.subscription and l.lane = e.lane and l.since is not null
    join begins o on o.subscription = e.subscription and o.lane = e.lane
    join deed.progress g on g.subscription = o.subscription and g.lane = o.lane and g.n = o.n
    join deed.windows b on b.n = g.from_window
    join deed.windows f on f.n = e.from_window
    left join deed.windows t on t.n = e.to_window
    cross join lateral generate_series(l.slot_from, l.slot_upto) a(lane_slot)
    where e.to_window is null or t.n is not null
  ),
  -- What was published in another cluster has numbers up to upper, whatever
  -- its transaction ids look like here.
  passed as (
    select a.subscription, a.lane, count(*) as at_most, count(*) filter (where l.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))) as messages
    from places a
    join deed.log l on l.slot = a.lane_slot
    where l.list_version >= a.since
      and not ((pg_visible_in_snapshot(l.xid, a.b_cur) and l.id <= a.b_upper) or (l.id <= a.b_id and l.xid >= a.b_h))
      and ((pg_visible_in_snapshot(l.xid, a.f_cur) and l.id <= a.f_upper) or (l.id <= a.f_id and l.xid >= a.f_h)
        or (not a.between_windows
          and ((pg_visible_in_snapshot(l.xid, a.t_cur) and l.id <= a.t_upper) or (l.id <= a.t_id and l.xid >= a.t_h))
          and case
            when a.part = 0 then l.id <= a.f_base and l.id <= a.id
            when a.part = 1 then l.id <= a.id
            when l.id <= a.f_base and a.late_first then true
            else ((l.id - 1) / 65536, l.slot, l.id) <= ((a.id - 1) / 65536, a.slot, a.id)
          end))
    group by a.subscription, a.lane
  ),
  told as (
    select e.subscription, e.lane, coalesce(sum(g.messages), 0) as messages,
      bool_or(w.system_identifier <> f.system_identifier) as moved
    from ends e
    join begins b on b.subscription = e.subscription and b.lane = e.lane
    join deed.progress o on o.subscription = b.subscription and o.lane = b.lane and o.n = b.n
    join deed.windows w on w.n = o.from_window
    join deed.windows f on f.n = coalesce(e.to_window, e.from_window)
    left join deed.progress g on g.subscription = e.subscription and g.lane = e.lane and g.n > b.n
    group by e.subscription, e.lane
  ),
  aside as materialized (
    select g.subscription, g.lane, g.n, i.id
    from deed.progress g
    cross join lateral unnest(g.aside_ids) i(id)
    where g.subscription not in (select r.subscription from removed r)
  ),
  finished as (
    select r.subscription, i.id
    from deed.receipts r
    join (select distinct a.subscription from aside a) s on s.subscription = r.subscription
    cross join lateral unnest(r.ids) i(id)
  )
  select case when t.messages < coalesce(p.messages, 0) then 'stream has left out messages' else 'stream has read messages twice' end,
    t.subscription, null::bigint,
    format('lane %s has gone past %s messages, its records say %s', t.lane, coalesce(p.messages, 0), t.messages)
  from told t
  join lanes l on l.subscription = t.subscription and l.lane = t.lane and l.since is not null
  left join passed p on p.subscription = t.subscription and p.lane = t.lane
  where t.messages < coalesce(p.messages, 0) or (t.messages > coalesce(p.at_most, 0) and not t.moved)
  union all
  select 'records of a lane do not add up', g.subscription, null,
    format('lane %s, page %s: %s messages, %s of them aside, %s delivered in all after %s', g.lane, g.n, g.messages, g.aside, g.total, coalesce(g.was_total, 0))
  from pages g
  where g.messages < 0 or g.aside < 0 or g.aside > g.messages
    or g.total <> coalesce(g.was_total, g.total - g.messages + g.aside) + g.messages - g.aside
    or (g.n = 0 and g.total <> 0)
    or (g.messages > 0) <> (num_nulls(g.min_id, g.max_id) = 0) or g.min_id > g.max_id
    or exists (select from unnest(g.aside_ids) i(id) where i.id not between g.min_id and g.max_id)
  union all
  select 'a lane''s place went back', g.subscription, null,
    format('lane %s, page %s: from %s/%s/%s/%s to %s/%s/%s/%s', g.lane, g.n, g.was_from, coalesce(g.was_to, 0), g.was_slot, g.was_id,
      g.from_window, coalesce(g.to_window, 0), g.slot, g.id)
  from pages g
  where g.to_window <= g.from_window
    or (g.was_n is not null and (g.from_window < g.was_from
      or (g.from_window = g.was_from and g.was_to is not null and (g.to_window is distinct from g.was_to
        or (case when g.slot < 0 then g.slot else 0 end, case when g.slot < 0 then 0 else (g.id - 1) / 65536 end, greatest(g.slot, 0), g.id)
          < (case when g.was_slot < 0 then g.was_slot else 0 end, case when g.was_slot < 0 then 0 else (g.was_id - 1) / 65536 end, greatest(g.was_slot, 0), g.was_id)))
      or (g.from_window > g.was_from and g.from_window < g.was_to)))
  union all
  select 'record of a lane is missing', coalesce(l.subscription, g.subscription), null,
    case
      when l.lane is null then format('lane %s has page %s, and there is no such lane', g.lane, g.n)
      when g.n is null then format('lane %s has none', l.lane)
      when g.place = 1 then format('lane %s begins with page %s, and retention has left all from %s on', l.lane, g.n, l.kept_from)
      else format('lane %s has page %s after page %s', l.lane, g.n, g.was_n)
    end
  from lanes l
  full join pages g on g.subscription = l.subscription and g.lane = l.lane
  where l.lane is null or g.n is null or (g.place = 1 and g.n <> l.kept_from) or g.n <> g.was_n + 1
  union all
  select 'a lane''s window is missing', e.subscription, null, format('lane %s stands at window %s/%s', e.lane, e.from_window, coalesce(e.to_window, 0))
  from ends e
  join lanes l on l.subscription = e.subscription and l.lane = e.lane and l.is_live
  left join deed.windows f on f.n = e.from_window
  left join deed.windows t on t.n = e.to_window
  where f.n is null or (e.to_window is not null and t.n is null)
  union all
  select 'a lane''s owner is not its record''s', e.subscription, null, format('lane %s is under %s, its last page under %s', e.lane, l.fence, e.fence)
  from ends e
  join lanes l on l.subscription = e.subscription and l.lane = e.lane and l.is_live
  where l.fence <> e.fence
  union all
  select 'a lease outlasts all that there are', l.subscription, null, format('lane %s is held until %s', l.lane, l.lease_until)
  from deed.lanes l
  where l.lease_until > clock_timestamp() + interval '25 hours'
  union all
  select 'lanes do not cover their topic', s.id, null, format('%s slots from %s to %s', c.slots, c.slot_from, c.slot_upto)
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  join (
    select l.subscription, sum(l.slot_upto - l.slot_from + 1) as slots, min(l.slot_from) as slot_from, max(l.slot_upto) as slot_upto,
      bool_or(l.overlaps) as overlaps
    from (
      select l.*, l.slot_from <= lag(l.slot_upto) over (partition by l.subscription order by l.slot_from) as overlaps from deed.lanes l
    ) l
    group by l.subscription
  ) c on c.subscription = s.id
  where s.since is null or c.slots <> 64 or c.slot_from <> t.slot_base or c.slot_upto <> t.slot_base + 63 or c.overlaps
  union all
  select 'stream has lost its lanes', s.id, null, 'it has read, and no lane says how far'
  from deed.subscriptions s
  where s.since is not null
    and s.id in (select f.subscription from deed.former_lanes f where f.since >= s.since)
    and s.id not in (select l.subscription from deed.lanes l)
  union all
  select 'message put aside is lost', a.subscription, a.id, format('page %s of lane %s put it aside, and it has neither a pending row nor a receipt', a.n, a.lane)
  from aside a
  join (
    select l.id, l.tenant_id from deed.log l
    union all
    select k.id, k.tenant_id from deed.kept k
    where not exists ( -- else it stays for that one (deed.purge_kept), and its receipts go by their age
      select from deed.subscriptions s join deed.backfills b on b.subscription = s.id where s.topic = k.topic and b.finished_at is null
    )
  ) c on c.id = a.id and c.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
  left join deed.pending p on p.subscription = a.subscription and p.id = a.id
  left join finished f on f.subscription = a.subscription and f.id = a.id
  where p.id is null and f.id is null
  union all
  select 'parked behind nothing', p.subscription, min(p.id), format('%s messages of a key are parked, and none of it is free', count(*))
  from deed.pending p
  where p.subscription not in (select r.subscription from removed r)
    and p.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
  group by p.subscription, p.key_hash
  having bool_and(p.parked) or (p.key_hash is null and bool_or(p.parked))
$$;
