-- deed.backfill: bring a new subscription what was published before it (O18).
--
-- First it is put in its topic's list, if another transaction was changing that
-- when it was made. Owed are the log rows of its topic that were published under an older list
-- of subscriptions (list_version). Their publishers took their transaction id
-- before they read the list, so all of them are below the id h of a window
-- that is opened once the registration has committed: a closed set. What that
-- window sees is read by number where all topics that nobody had declared share the
-- slots, unless much of the log has no summary then, which each step would read; the rest by
-- pages of (slot, id); what was running then is taken by transaction id when it has
-- ended. No rule waits: until the next of them has
-- ended the function returns finished = false, and reads and writes nothing.
-- What subscriptions of a topic that was removed had taken over from before it was
-- declared does not come again under its new one.
--
-- A row with an id up to the window's base and a transaction id from h on was
-- written by another cluster (dump and restore, logical replication): it had
-- committed.
--
-- One page a call, or where little of it is owed up to twenty, or a hundred by
-- number; calls exclude each other. If this one starts at the
-- beginning, what the subscription 0 is holding for the topic moves here as it
-- stands; while one message of the page is under a live lease there, the page
-- waits. A stream reads from the log what was published to it; what retention
-- has moved out of that before comes from here, each key in its order, and
-- deed.make_lanes waits for it. Raises DDARG in a transaction that already has a transaction id, as a
-- window opened there would not see what is published meanwhile.
create or replace function deed.backfill(
  p_subscription int,
  p_limit        int default 1000
) returns table (added int, finished boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  c_stale   constant int := 5000; -- pages without a summary that a step may read
  c_timeout constant text := current_setting('lock_timeout');
  v_b     deed.backfills%rowtype;
  v_sub   record;
  v_w     record;
  v_slots int[];
  v_page  bigint[];
  v_now   pg_snapshot;
  v_ended xid8[];
  v_end   record;
  v_limit int := p_limit;
  v_full  boolean;
  v_reach int;
  v_upto  bigint;
  v_last  int;
  v_rows  tid[];
  v_more  int;
  v_keys  bigint[];
begin
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'backfill: this transaction has written already' using errcode = 'DDARG',
      hint = 'Call it in a transaction of its own.';
  end if;
  added := 0;
  select b.* into v_b from deed.backfills b where b.subscription = p_subscription;
  finished := found and v_b.finished_at is not null;
  if not found or finished then
    return next;
    return;
  end if;

  if exists (select from deed.subscriptions s where s.id = p_subscription and s.list_version is null) then
    perform deed.join_list(p_subscription);
    return next;
    return;
  end if;
  if v_b.window_n is null then
    -- From here on nothing is moved that a stream is to read, and all that was is
    -- below the window (deed.keepers).
    begin
      lock table deed.retention_lock in share update exclusive mode nowait;
    exception when lock_not_available then
      return next;
      return;
    end;
    -- Before any lock on a row, as that takes a transaction id.
    v_b.window_n := deed.open_window('try');
    update deed.backfills b
    set window_n = v_b.window_n, seen = (select w.cur from deed.windows w where w.n = v_b.window_n),
      reached = (
        select case when coalesce(sum(pg_relation_size(to_regclass('deed.log_p' || p.n)) / current_setting('block_size')::int - p.summarised * 32), 0) < c_stale then 0 end
        from deed.partitions p
        where p.emptied_at is null and p.from_id <= pg_sequence_last_value('deed.log_seq')
      )
    where v_b.window_n is not null and b.subscription in (
      -- It may be being removed, by a transaction that is left open; or have begun anew
      -- since, after the window.
      select q.subscription from deed.backfills q
      where q.subscription = p_subscription and q.window_n is null and q.made_by = v_b.made_by
      for update skip locked
    );
    return next;
    return;
  end if;

  select w.base, w.h, w.cur, w.upper, w.system_identifier <> c.system_identifier as moved, least(w.opened_at, clock_timestamp()) as at into v_w
  from deed.windows w
  cross join pg_control_system() c
  where w.n = v_b.window_n;
  if v_b.scanned and v_b.upto is null then
    select pg_current_snapshot() into v_now;
    if not v_w.moved and pg_snapshot_xmin(v_now) < v_w.h and pg_snapshot_xmax(v_b.seen) >= v_w.h
      and not exists (select from pg_snapshot_xip(v_b.seen) x where x < v_w.h and pg_visible_in_snapshot(x, v_now))
    then
      return next;
      return;
    end if;
  end if;
  select b.* into v_b from deed.backfills b where b.subscription = p_subscription for update skip locked;
  if not found or v_b.finished_at is not null then
    finished := found;
    return next;
    return;
  end if;

  select s.topic, case when s.read_window is null then s.start end as start, s.list_version, s.since,
    coalesce(s.read_since, 0) as read_since, -- older ones got their pending rows from their publishers, or an earlier backfill
    case when s.read_window is null then -1 else 64 end as slot_from, t.slot_base, t.ordered,
    coalesce((
      select max(r.list_version) from deed.removals r where r.topic = s.topic and r.whole and r.start = 'beginning'
    ), 0) as anew,
    f.cur as start_snapshot, f.h as start_h, f.restored_id
  into v_sub
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  join deed.windows f on f.n = coalesce(s.read_window, s.start_window)
  where s.id = p_subscription;

  if not v_b.scanned and v_b.slot < 63 and v_b.reached is not null then
    -- First what was published while nobody had declared the topic: as many numbers
    -- as a page has rows, then as many more as may have the rest of a page.
    v_b.reached := case when v_sub.slot_from < 64 then v_b.reached else v_w.upper end;
    v_reach := p_limit;
    while v_b.reached < v_w.upper loop
      -- What is between a partition's last number and its end is far, and little.
      select case when greatest(v_b.reached, e.from_id) + v_reach < e.last_id then greatest(v_b.reached, e.from_id) + v_reach else e.upto_id end
      into v_upto
      from deed.log_extents() e
      where e.upto_id > v_b.reached
      order by e.from_id
      limit 1;
      v_upto := least(v_upto, v_w.upper);
      select coalesce(min(k.id), v_upto) into v_upto
      from (select k.id from deed.kept k where k.id > v_b.reached and k.id <= v_upto order by k.id offset v_reach - 1 limit 1) k;
      with page as materialized (
        select u.slot, u.id, u.xid, u.list_version from deed.undeclared_between(v_sub.topic, v_b.reached, v_upto, v_limit) u
      ),
      owed as (
        select array_agg(p.slot order by p.id) as slots, array_agg(p.id order by p.id) as ids
        from page p
        where p.list_version >= v_sub.read_since and p.list_version < v_sub.list_version
          and (p.slot, p.id) > (v_b.slot, v_b.id)
          and (pg_visible_in_snapshot(p.xid, v_w.cur) or (p.id <= v_w.base and p.xid >= v_w.h))
      )
      select o.slots, o.ids, f.n = v_limit as is_full, f.id into v_end
      from owed o
      cross join (select count(*) as n, max(p.id) as id from page p) f;
      v_slots := v_slots || v_end.slots;
      v_page := v_page || v_end.ids;
      v_b.reached := case when v_end.is_full then v_end.id else v_upto end;
      v_limit := p_limit - coalesce(cardinality(v_page), 0);
      exit when v_end.is_full or v_reach <> p_limit or v_limit < p_limit / 2;
      v_reach := least(100 * p_limit, 2::bigint * p_limit * p_limit / (p_limit - v_limit + 1));
    end loop;
  elsif not v_b.scanned then
    -- The slots 0 to 63, if it has not been read by number, then its own.
    v_last := case when v_b.slot < 63 then 63 else v_sub.slot_base + 63 end;
    -- A page; if nothing of it is owed, up to a page of what is owed among twenty.
    v_reach := p_limit;
    loop
      with page as materialized (
        select q.*
        from (
          (
            select l.slot, l.id, l.xid, l.topic, l.list_version
            from deed.log l
            where (l.slot, l.id) > (v_b.slot, v_b.id) and l.slot <= case when v_sub.since = 0 then 63 else v_last end
            order by l.slot, l.id
            limit v_reach
          )
          union all
          (
            select k.slot, k.id, k.xid, k.topic, k.list_version
            from deed.kept k
            where (k.slot, k.id) > (v_b.slot, v_b.id) and k.slot <= v_last
            order by k.slot, k.id
            limit v_reach
          )
        ) q
        order by q.slot, q.id
        limit v_reach
      ),
      owed as (
        select array_agg(o.slot) as slots, array_agg(o.id) as ids
        from (
          select p.slot, p.id
          from page p
          where p.topic = v_sub.topic and p.list_version >= v_sub.read_since and p.list_version < v_sub.list_version and p.id <= v_w.upper
            and (v_sub.since is null or p.list_version < v_sub.since or p.slot < 64 or v_sub.since = 0) -- else a stream reads it
            and p.slot >= v_sub.slot_from
            and (pg_visible_in_snapshot(p.xid, v_w.cur) or (p.id <= v_w.base and p.xid >= v_w.h))
          order by p.slot, p.id
          limit p_limit
        ) o
      )
      select o.slots, o.ids, f.slot, f.id, (select count(*) = v_reach from page) as is_full into v_end
      from owed o
      left join (select p.slot, p.id from page p order by p.slot desc, p.id desc limit 1) f on true;
      exit when v_end.ids is not null or not v_end.is_full or v_reach > p_limit;
      v_reach := 20 * p_limit;
    end loop;
    v_slots := v_end.slots;
    v_page := v_end.ids;
    if cardinality(v_page) = p_limit then -- there may be more on the way to the end
      v_end.slot := v_slots[p_limit];
      v_end.id := v_page[p_limit];
      v_end.is_full := true;
    end if;
  else
    -- Late rows: running in seen, ended in upto. Both stay fixed until the
    -- last page between them has been read. In another cluster all have ended.
    v_now := v_b.upto;
    if v_now is null then
      select case when v_w.moved then format('%s:%s:', v_w.h, v_w.h)::pg_snapshot else pg_current_snapshot() end into v_now;
      update deed.backfills b set upto = v_now, late_id = 0 where b.subscription = p_subscription;
      v_b.late_id := 0;
    end if;
    v_limit := 10 * p_limit;
    v_ended := array(
      select x from pg_snapshot_xip(v_b.seen) x
      where x < v_w.h and pg_visible_in_snapshot(x, v_now)
    );
    -- id + 0: by no other index than the one on xid.
    select array_agg(r.slot), array_agg(r.id), count(*) = v_limit
    into v_slots, v_page, v_full
    from (
      select q.slot, q.id
      from (
        select l.slot, l.id
        from unnest(v_ended) e(xid)
        cross join lateral (
          select l.slot, l.id
          from deed.log l
          where l.xid = e.xid and l.id + 0 > v_b.late_id
            and l.topic = v_sub.topic and l.list_version >= v_sub.read_since and l.list_version < v_sub.list_version
            and (v_sub.since is null or l.list_version < v_sub.since or l.slot < 64)
            and l.slot >= v_sub.slot_from
          order by l.id
          limit v_limit
        ) l
        union all
        (
          select l.slot, l.id
          from deed.log l
          where l.xid >= pg_snapshot_xmax(v_b.seen) and l.xid < v_w.h
            and pg_visible_in_snapshot(l.xid, v_now)
            and l.id + 0 > v_b.late_id and l.topic = v_sub.topic and l.list_version >= v_sub.read_since and l.list_version < v_sub.list_version
            and (v_sub.since is null or l.list_version < v_sub.since or l.slot < 64)
            and l.slot >= v_sub.slot_from
          order by l.id
          limit v_limit
        )
      ) q
      order by q.id
      limit v_limit
    ) r;
  end if;

  if v_page is not null then
    begin
      -- A deletion that is under way (deed.purge) goes by the subscriptions that there were when it began.
      perform set_config('lock_timeout', '50ms', true);
      lock table deed.purges in share mode;
      perform set_config('lock_timeout', c_timeout, true);
    exception when lock_not_available then
      return next;
      return;
    end;
  end if;
  if v_page is not null and v_sub.start = 'beginning' then
    v_rows := array(
      select q.ctid
      from unnest(v_page) u(id)
      cross join lateral (
        select p.ctid from deed.pending p
        where p.subscription = 0 and p.id = u.id and (p.lease_until is null or p.lease_until <= clock_timestamp())
        for update skip locked
      ) q
    );
    if exists (
      select from unnest(v_page) u(id)
      cross join lateral (
        select p.ctid from deed.pending p where p.subscription = 0 and p.id = u.id offset 0
      ) q
      where q.ctid <> all (v_rows)
    ) then
      return next;
      return;
    end if;
    with gone as (
      delete from deed.pending p
      where p.ctid = any (v_rows)
      returning p.*
    )
    insert into deed.pending (
      subscription, slot, id, attempts, lost_claims, parked, tenant_id, ord_at, process_after, dead_at, last_error
    )
    select p_subscription, g.slot, g.id, g.attempts, g.lost_claims, g.parked, g.tenant_id, g.ord_at, g.process_after,
      g.dead_at, g.last_error
    from gone g
    where g.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
    on conflict do nothing;
    get diagnostics added = row_count;
  end if;
  if v_page is not null then
    -- So that deed.purge_kept passes over it; what that had locked before is gone.
    perform from unnest(v_slots, v_page) page(slot, id)
    join deed.kept k on k.slot = page.slot and k.id = page.id
    for key share of k;
    with given as (
      insert into deed.pending (subscription, slot, id, tenant_id, ord_at, process_after, key_hash, parked)
      -- Its turn as when it is published, at one moment for all: whatever time it says passes by nobody.
      select p_subscription, l.slot, l.id, l.tenant_id, deed.order_at(l.created_at, v_w.at),
        case when l.process_after >= v_w.at - interval '1 hour' then l.process_after end, h.hash, h.hash is not null
      from unnest(v_slots, v_page) page(slot, id)
      cross join lateral (
        select l.slot, l.id, l.xid, l.list_version, l.tenant_id, l.created_at, l.process_after, l.key
        from deed.log l where l.slot = page.slot and l.id = page.id
        union all
        select k.slot, k.id, k.xid, k.list_version, k.tenant_id, k.created_at, k.process_after, k.key
        from deed.kept k where k.slot = page.slot and k.id = page.id
      ) l
      cross join lateral (
        select case when v_sub.since = 0 and v_sub.ordered and l.slot >= 64 and l.key <> '' and coalesce(l.process_after <= clock_timestamp(), true)
          then deed.key_hash(l.tenant_id, l.key) end
      ) h(hash)
      where (l.slot >= 64 or l.list_version >= v_sub.anew)
        and l.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
        and (
          coalesce(v_sub.start = 'beginning', false)
          or not (
            pg_visible_in_snapshot(l.xid, v_sub.start_snapshot)
            or (l.id <= v_sub.restored_id and l.xid >= greatest(v_sub.start_h, pg_snapshot_xmax(v_sub.start_snapshot)))
          )
        )
      on conflict do nothing
      returning key_hash
    )
    select count(*), array_agg(g.key_hash) filter (where g.key_hash is not null) into v_more, v_keys from given g;
    added := added + v_more;
    if v_keys is not null then
      perform deed.release_keys(p_subscription, v_keys); -- the first of each goes
    end if;
  end if;

  if not v_b.scanned and v_b.slot < 63 and v_b.reached is not null then
    update deed.backfills b
    set reached = v_b.reached, slot = case when v_b.reached < v_w.upper then b.slot else v_sub.slot_base - 1 end,
      id = case when v_b.reached < v_w.upper then b.id else 9223372036854775807 end
    where b.subscription = p_subscription;
  elsif not v_b.scanned then
    if v_end.is_full then
      update deed.backfills b set slot = v_end.slot, id = v_end.id where b.subscription = p_subscription;
    else
      update deed.backfills b
      set slot = v_sub.slot_base - 1, id = 9223372036854775807, scanned = v_last > 63
      where b.subscription = p_subscription;
    end if;
  elsif v_full then
    update deed.backfills b set late_id = v_page[cardinality(v_page)] where b.subscription = p_subscription;
  else
    finished := pg_snapshot_xmin(v_now) >= v_w.h;
    update deed.backfills b
    set seen = v_now, upto = null,
      finished_at = case when pg_snapshot_xmin(v_now) >= v_w.h then clock_timestamp() end
    where b.subscription = p_subscription;
  end if;
  return next;
end
$$;
