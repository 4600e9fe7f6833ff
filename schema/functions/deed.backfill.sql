-- deed.backfill: bring a new subscription what was published before it (O18).
--
-- Owed are the log rows of its topic that were published under an older list
-- of subscriptions (list_version). Their publishers took their transaction id
-- before they read the list, so all of them are below the id h of a window
-- that is opened once the registration has committed: a closed set. What that
-- window sees is read by pages of (slot, id); what was running then is taken by
-- transaction id when it has ended. No rule waits: until the last of them has
-- ended the function returns finished = false and costs two index look-ups.
--
-- One page a call, in a transaction of its own; calls exclude each other. Moves what the subscription 0 was
-- holding for the topic, if this one starts at the beginning.
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
as $$
declare
  v_b     deed.backfills%rowtype;
  v_sub   record;
  v_w     record;
  v_last  int;
  v_slots int[];
  v_page  bigint[];
  v_now   pg_snapshot;
  v_full  boolean;
begin
  if pg_current_xact_id_if_assigned() is not null then
    -- Its window would have an id that is older than what it looks for.
    raise exception 'backfill: it must be the first statement of its transaction that writes' using errcode = 'DDARG';
  end if;
  added := 0;
  finished := false;
  select b.* into v_b from deed.backfills b where b.subscription = p_subscription for update skip locked;
  if not found or v_b.made_by = pg_current_xact_id() then
    finished := exists (select from deed.backfills b where b.subscription = p_subscription and b.finished_at is not null);
    return next;
    return;
  end if;
  if v_b.finished_at is not null then
    finished := true;
    return next;
    return;
  end if;

  if v_b.window_n is null then
    v_b.window_n := deed.open_window();
    update deed.backfills b
    set window_n = v_b.window_n, seen = (select w.cur from deed.windows w where w.n = v_b.window_n)
    where b.subscription = p_subscription;
    return next;
    return;
  end if;

  select s.topic, s.start, s.list_version, t.slot_base, f.cur as start_snapshot, f.restored_id
  into v_sub
  from deed.subscriptions s
  join deed.topics t on t.topic = s.topic
  join deed.windows f on f.n = s.start_window
  where s.id = p_subscription;
  select w.h, w.cur, w.upper, w.restored_id into v_w from deed.windows w where w.n = v_b.window_n;

  if not v_b.scanned then
    -- First what was published while nobody had declared the topic (slots 0 to
    -- 63, shared with other such topics), then its own slots.
    v_last := case when v_b.slot < 63 then 63 else v_sub.slot_base + 63 end;
    with page as materialized (
      select l.slot, l.id, l.xid, l.topic, l.list_version
      from deed.log l
      where (l.slot, l.id) > (v_b.slot, v_b.id) and l.slot <= v_last
      order by l.slot, l.id
      limit p_limit
    ),
    owed as (
      select array_agg(p.slot) as slots, array_agg(p.id) as ids
      from page p
      where p.topic = v_sub.topic and p.list_version < v_sub.list_version and p.id <= v_w.upper
        and (p.id <= v_w.restored_id or pg_visible_in_snapshot(p.xid, v_w.cur))
    ),
    moved as (
      update deed.backfills b
      set slot = f.slot, id = f.id
      from (select p.slot, p.id from page p order by p.slot desc, p.id desc limit 1) f
      where b.subscription = p_subscription
    )
    select o.slots, o.ids, (select count(*) = p_limit from page) into v_slots, v_page, v_full from owed o;
    if not v_full then
      update deed.backfills b
      set slot = v_sub.slot_base - 1, id = 9223372036854775807, scanned = v_last > 63
      where b.subscription = p_subscription;
    end if;
  else
    -- Late rows: running in seen, ended in upto. Both stay fixed until the
    -- last page between them has been read.
    v_now := v_b.upto;
    if v_now is null then
      select pg_current_snapshot() into v_now;
      update deed.backfills b set upto = v_now, late_id = 0 where b.subscription = p_subscription;
      v_b.late_id := 0;
    end if;
    select array_agg(r.slot), array_agg(r.id), count(*) = 10 * p_limit
    into v_slots, v_page, v_full
    from (
      select late.slot, late.id
      from (
        select l.slot, l.id
        from pg_snapshot_xip(v_b.seen) x
        cross join lateral (
          select o.slot, o.id
          from deed.log o
          where o.xid = x and o.id > v_b.late_id and o.topic = v_sub.topic and o.list_version < v_sub.list_version
          order by o.id
          limit 10 * p_limit
        ) l
        where x < v_w.h and pg_visible_in_snapshot(x, v_now)
        union all
        select l.slot, l.id
        from deed.log l
        where l.xid >= pg_snapshot_xmax(v_b.seen) and l.xid < v_w.h and pg_visible_in_snapshot(l.xid, v_now)
          and l.id > v_b.late_id and l.topic = v_sub.topic and l.list_version < v_sub.list_version
      ) late
      order by late.id
      limit 10 * p_limit
    ) r;
    if v_full then
      update deed.backfills b set late_id = v_page[cardinality(v_page)] where b.subscription = p_subscription;
    else
      finished := pg_snapshot_xmin(v_now) >= v_w.h;
      update deed.backfills b
      set seen = v_now, upto = null, finished_at = case when pg_snapshot_xmin(v_now) >= v_w.h then clock_timestamp() end
      where b.subscription = p_subscription;
    end if;
  end if;

  if v_page is null then
    return next;
    return;
  end if;
  if v_sub.start = 'beginning' then
    delete from deed.pending p
    where p.subscription = 0 and p.id = any (v_page) and p.dead_at is null -- the dead wait for an operator
      and (p.lease_until is null or p.lease_until <= clock_timestamp());
  end if;
  insert into deed.pending (subscription, slot, id, tenant_id, ord_at, process_after)
  select p_subscription, l.slot, l.id, l.tenant_id, least(l.created_at, clock_timestamp()), l.process_after
  from unnest(v_slots, v_page) page(slot, id)
  join deed.log l on l.slot = page.slot and l.id = page.id
  where v_sub.start = 'beginning' or not (l.id <= v_sub.restored_id or pg_visible_in_snapshot(l.xid, v_sub.start_snapshot))
  on conflict do nothing;
  get diagnostics added = row_count;
  return next;
end
$$;
