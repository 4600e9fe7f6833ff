-- deed.count_unread: deed.lag with what a stream has still to read counted up to
-- p_most in all, or with p_each_lane up to p_most for each stretch of a lane.
-- at_least says that there may be more; oldest is of all, whatever was counted. With
-- p_each_lane and p_most 1 it is the first of each slot that is counted. What is
-- above a window is not read, whatever the transaction ids say: see deed.unseen.
create or replace function deed.count_unread(
  p_subscriptions int[],
  p_most          int,
  p_each_lane     boolean
) returns table (subscription int, behind bigint, oldest timestamptz, at_least boolean)
language sql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
  select s.id, w.behind,
    case when w.behind < p_most or p_most = 1 and p_each_lane then w.oldest
      else least(w.oldest, (select u.oldest from deed.count_unread(array[s.id], 1, true) u)) end,
    w.behind >= p_most
  from unnest(p_subscriptions) s(id)
  cross join lateral (
    select count(*) as behind, min(q.created_at) as oldest
    from (
      select r.created_at
      from (
        select l.slot_from, l.slot_upto, d.since, at.slot % 1073741824 as at_slot, at.id as at_id, at.slot >= 1073741824 or (at.slot >= 0 and at.id <= p.base) as at_all, -- see deed.page
          p.base, p.h, p.cur as p_cur, p.upper as p_upper, p.restored_id as p_id, p.restored_h as p_h,
          c.cur as c_cur, c.upper as c_upper, c.restored_id as c_id, c.restored_h as c_h
        from (
          select l.lane, l.slot_from, l.slot_upto from deed.lanes l where l.subscription = s.id
          union all
          select null, t.slot_base, t.slot_base + 63
          from deed.subscriptions n
          join deed.topics t on t.topic = n.topic
          where n.id = s.id and not exists (select from deed.lanes l where l.subscription = s.id)
        ) l
        join deed.subscriptions d on d.id = s.id and d.since is not null
        left join lateral (
          select g.from_window, g.to_window, g.slot, g.id
          from deed.progress g
          where g.subscription = s.id and g.lane = l.lane
          order by g.n desc
          limit 1
        ) at on true
        join deed.windows p on p.n = coalesce(at.from_window, d.since_window)
        left join deed.windows c on c.n = at.to_window
      ) a
      cross join lateral (
        (
          select l.created_at
          from generate_series(a.slot_from, a.slot_upto) s(slot)
          cross join lateral (
            select l.*
            from deed.log l
            where l.slot = s.slot and l.id > a.base and l.list_version >= a.since
              and not ((pg_visible_in_snapshot(l.xid, a.p_cur) and l.id <= a.p_upper) or (l.id <= a.p_id and l.xid >= a.p_h))
              and not coalesce(
                ((pg_visible_in_snapshot(l.xid, a.c_cur) and l.id <= a.c_upper) or (l.id <= a.c_id and l.xid >= a.c_h))
                  and case
                    when a.at_slot < -1 then false
                    when a.at_slot = -1 then l.id <= a.at_id
                    else ((l.id - 1) / 65536, l.slot, l.id) <= ((a.at_id - 1) / 65536, a.at_slot, a.at_id)
                  end,
                false
              )
            order by l.slot, l.id
            limit p_most
          ) l
          limit case when p_most = 1 and p_each_lane then 64 else p_most end
        )
        union all
        (
          select l.created_at
          from unnest(deed.late_xids(a.p_cur, a.h, pg_current_snapshot())) ran(xid)
          cross join lateral (select l.* from deed.log l where l.xid = ran.xid offset 0) l
          where l.id <= a.base and l.slot between a.slot_from and a.slot_upto and l.list_version >= a.since
            and not coalesce(
              pg_visible_in_snapshot(l.xid, a.c_cur)
                and case
                  when a.at_all then ((l.id - 1) / 65536, l.slot, l.id) <= ((a.at_id - 1) / 65536, a.at_slot, a.at_id)
                  else a.at_slot > -2 or l.id <= a.at_id
                end,
              false
            )
          order by l.created_at
          limit p_most
        )
      ) r
      limit case when not p_each_lane then p_most end
    ) q
  ) w
$$;
