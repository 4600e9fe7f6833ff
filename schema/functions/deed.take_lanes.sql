-- deed.take_lanes: hold a fair share of the lanes of streams.
--
-- What a process calls every second or so for all streams it reads: it says
-- that it lives, renews its leases, takes lanes that are free or whose lease
-- has run out, up to its share (lanes divided by living processes, and one more for as
-- many of them as lanes are left over), and is told which to give back because another
-- has less than its own. Of those who have one more too many the first by name keep it,
-- and who has given it back takes none while they have theirs. A lane
-- that is taken has a new fence and a row of deed.progress of it, so that its
-- former owner records nothing any more. Returns the lanes that are held, with
-- the position for those taken now; takeovers counts the owners in a row that
-- lost the lane where they had taken it.
--
-- Makes the lanes of a stream that has none, and sees to a change of lanes
-- (deed.set_topic): last_window 0 asks for a stop between two windows and
-- deed.pause_lane, more says up to which window to read. For a subscription
-- that is a queue's one row comes, without a lane.
--
-- p_protocol is 2 for programs to which a key is its tenant's own. Raises DDCON
-- for others: two that hash keys otherwise would not see which are blocked.
-- p_leases are those with which the process reads the subscriptions, in their order:
-- it knows of no other, and by that one stops when it cannot renew. Null: the
-- subscription's, as it is now. Raises DDARG for one that is not from a second to a day.
create or replace function deed.take_lanes(
  p_worker        uuid,
  p_name          text,
  p_subscriptions int[],
  p_take          boolean default true,
  p_protocol      int default 1,
  p_leases        interval[] default null
) returns table (
  subscription int, lane int, slot_from int, slot_upto int, ordered boolean, fence bigint, give_back boolean,
  takeovers int, last_window bigint
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_sub   record;
  v_lane  deed.lanes%rowtype;
  v_was   deed.lanes%rowtype;
  v_last  deed.progress%rowtype;
  v_total int;
  v_mine  int;
  v_old   int;
  v_free  int;
  v_live  int;
  v_fewest int;
  v_share int;
  v_busy  int[];
  v_make  boolean;
begin
  if p_protocol is distinct from 2 then
    raise exception 'take_lanes: this program is older than the schema, which has keys by tenant; upgrade it' using errcode = 'DDCON';
  end if;
  if exists (select from unnest(p_leases) u(lease) where u.lease not between interval '1 second' and interval '24 hours') then
    raise exception 'take_lanes: leases must be from 1 second to 24 hours, got %', p_leases using errcode = 'DDARG';
  end if;
  return query
  select s.id, null::int, null::int, null::int, null::boolean, null::bigint, false, 0, null::bigint
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  where s.id = any (p_subscriptions) and t.mode = 'queue';

  -- Most of the time there is nothing to do for most of them.
  v_busy := array(
    select s.id
    from deed.subscriptions s
    join deed.topics t on t.topic = s.topic
    cross join lateral (select coalesce(p_leases[array_position(p_subscriptions, s.id)], s.lease) as lease) k
    cross join lateral (
      select count(*) as total,
        count(*) filter (where l.worker = p_worker) as mine,
        count(*) filter (where l.lease_until < v_now + k.lease * 2 / 3 and l.worker = p_worker) as old,
        count(*) filter (where l.worker is null or l.lease_until <= v_now) as free
      from deed.lanes l where l.subscription = s.id
    ) c
    cross join lateral (
      select count(*) as live, max(r.seen_until) filter (where r.worker = p_worker) as seen_until
      from deed.relays r where r.subscription = s.id and r.seen_until > v_now
    ) v
    where s.id = any (p_subscriptions) and t.mode = 'stream'
      and (c.old > 0 or (p_take and (
        c.total = 0
        or v.seen_until is null or v.seen_until < v_now + k.lease * 2 / 3
        or (c.free > 0 and c.mine < ceil(c.total::numeric / greatest(v.live, 1)))
        or exists (select from deed.relanings r where r.subscription = s.id)
      )))
  );

  -- One order for all, or two that take lanes at once deadlock.
  for v_sub in
    select s.id, coalesce(p_leases[array_position(p_subscriptions, s.id)], s.lease) as lease,
      case when r.subscription is not null then coalesce(r.window_n, 0) end as last_window
    from deed.subscriptions s
    join deed.topics t on t.topic = s.topic
    left join deed.relanings r on r.subscription = s.id
    where s.id = any (v_busy) and t.mode = 'stream'
    order by s.id
  loop
    if p_take then
      insert into deed.relays as r (subscription, worker, name, seen_until)
      values (v_sub.id, p_worker, p_name, v_now + v_sub.lease)
      on conflict on constraint relays_pkey do update set seen_until = excluded.seen_until
      where r.seen_until < v_now + v_sub.lease * 2 / 3;
    end if;

    select count(*) as total,
      count(*) filter (where l.worker = p_worker) as mine,
      count(*) filter (where l.lease_until < v_now + v_sub.lease * 2 / 3 and l.worker = p_worker) as old,
      count(*) filter (where l.worker is null or l.lease_until <= v_now) as free
    into v_total, v_mine, v_old, v_free
    from deed.lanes l where l.subscription = v_sub.id;
    select count(*) into v_live from deed.relays r where r.subscription = v_sub.id and r.seen_until > v_now;

    if p_take and (v_total = 0 or v_sub.last_window is not null) then
      begin
        lock table deed.lane_lock in share update exclusive mode nowait;
        v_make := true;
      exception when lock_not_available then
        v_make := false; -- another makes some; the next time
      end;
      if v_make then
        perform deed.make_lanes(v_sub.id);
        select case when r.subscription is not null then coalesce(r.window_n, 0) end into v_sub.last_window
        from (select) x left join deed.relanings r on r.subscription = v_sub.id;
        select count(*), count(*) filter (where l.worker = p_worker), count(*) filter (where l.worker is null or l.lease_until <= v_now)
        into v_total, v_mine, v_free
        from deed.lanes l where l.subscription = v_sub.id;
      end if;
    end if;

    if v_old > 0 then
      update deed.lanes l set lease_until = v_now + v_sub.lease
      where l.subscription = v_sub.id and l.worker = p_worker;
    end if;

    v_fewest := v_total / greatest(v_live, 1);
    v_share := v_fewest;
    if p_take and v_free > 0 and v_mine <= v_fewest and v_total % greatest(v_live, 1) > (
      select count(*)
      from deed.relays r
      cross join lateral (
        select count(*) as lanes from deed.lanes l where l.subscription = v_sub.id and l.worker = r.worker and l.lease_until > v_now
      ) o
      where r.subscription = v_sub.id and r.seen_until > v_now and r.worker <> p_worker and o.lanes > v_fewest
    ) then
      v_share := v_fewest + 1;
    end if;
    if p_take and v_free > 0 and v_mine < v_share then
      if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        -- Or a crash gives the fence to another owner.
        perform set_config('synchronous_commit', 'on', true);
      end if;
      for v_was in
        select l.*
        from deed.lanes l
        where l.subscription = v_sub.id and (l.worker is null or (l.lease_until <= v_now and l.worker <> p_worker))
        order by l.lane
        limit v_share - v_mine
        for update skip locked
      loop
        select g.* into v_last
        from deed.progress g
        where g.subscription = v_sub.id and g.lane = v_was.lane
        order by g.n desc
        limit 1;
        update deed.lanes l
        set worker = p_worker, lease_until = v_now + v_sub.lease, fence = deed.claim_number(), paused_at = null, taken_n = v_last.n + 1,
          takeovers = case
            when v_was.worker is null then 0
            when v_last.n = v_was.taken_n then v_was.takeovers + 1
            else 1
          end
        where l.subscription = v_sub.id and l.lane = v_was.lane
        returning l.* into v_lane;
        insert into deed.progress as g (subscription, lane, n, fence, from_window, to_window, slot, id, total, worker)
        values (v_sub.id, v_lane.lane, v_last.n + 1, v_lane.fence, v_last.from_window, v_last.to_window, v_last.slot, v_last.id, v_last.total, p_name);
        v_mine := v_mine + 1;
      end loop;
    end if;
  end loop;

  -- From one that has more than its share, the last ones. Read anew: a change
  -- may have been asked for meanwhile, for which they had stopped.
  return query
  select s.id, h.lane, h.slot_from, h.slot_upto, t.ordered, h.fence,
    h.place > h.fewest + 1 or (h.place > h.fewest and h.more <= (
      select count(*)
      from deed.relays v
      cross join lateral (
        select count(*) as lanes from deed.lanes l where l.subscription = s.id and l.worker = v.worker and l.lease_until > v_now
      ) o
      where v.subscription = s.id and v.seen_until > v_now and v.worker < p_worker and o.lanes > h.fewest
    )),
    h.takeovers,
    case when r.subscription is not null then coalesce(r.window_n, 0) end
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  left join deed.relanings r on r.subscription = s.id
  cross join lateral (
    select (select count(*) from deed.lanes o where o.subscription = s.id) as total,
      (select greatest(count(*), 1) from deed.relays v where v.subscription = s.id and v.seen_until > v_now) as live
  ) n
  cross join lateral (
    select l.*, n.total / n.live as fewest, n.total % n.live as more, row_number() over (order by l.lane) as place
    from deed.lanes l
    where l.subscription = s.id and l.worker = p_worker
  ) h
  where s.id = any (p_subscriptions) and t.mode = 'stream'
  order by s.id, h.lane;
end
$$;
