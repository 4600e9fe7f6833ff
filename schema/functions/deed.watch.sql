-- deed.watch: what a process that drains several subscriptions asks for news. One
-- statement serves a process, however many subscriptions it drains.
--
-- Reads; it writes nothing but a window, if one is to be opened (deed.open_window),
-- whose lock it tries: while another is opening one it is not waited for, as queues
-- have no business with it.
--
-- Of p_subscriptions and, parallel to it:
--   p_floors                 from when on something to claim is looked for
--   p_slot_from, p_slot_upto of which slots rows are wanted with a window; null: none
-- p_seq is the log's number as the caller has last seen it (null: look in any case),
-- p_window with p_window_h the last window that it knows (0: none; null: it reads no
-- streams).
--
-- The first row is the news:
--   seq       the log's number now
--   ready     those that have something to claim; null if the log has not moved
--   streams   those that are to be read as streams; null as well
--   window_n, window_h  a later window, if there is anything new to read; else null.
--             One is opened only if the log has moved, or a transaction that the last
--             window did not see, whether it began before that or while it was opened,
--             has ended and has published: idle ones cost nothing (the window
--             protocol's rule 8)
--   slots     those that have something new; null: any may
--   low, late what deed.window_late says of the two windows
--   whole     all that is new follows
-- If it is whole, each row that follows is a message, as deed.page reads it, for a
-- subscription: what has just come is few rows, and needs no page of its own. It may
-- be used once the statement has ended: then the window is durable. Columns of the
-- other kind of row are null.
create or replace function deed.watch(
  p_seq           bigint,
  p_subscriptions int[],
  p_floors        timestamptz[],
  p_window        bigint default null,
  p_window_h      xid8 default null,
  p_slot_from     int[] default null,
  p_slot_upto     int[] default null
) returns table (
  seq bigint, ready int[], streams int[], window_n bigint, window_h xid8, slots int[], low bigint, late xid8[], whole boolean,
  subscription int, place_slot int, slot int, id bigint, tenant_id uuid, key text, type text, content_type text, headers jsonb,
  payload bytea, created_at timestamptz, due boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_last  record;
  v_from  record;
  v_snap  pg_snapshot;
  v_news  boolean := false;
  v_count bigint;
  v_bytes bigint;
begin
  seq := pg_sequence_last_value('deed.log_seq');
  if seq is null then
    raise exception 'watch: deed.log_seq cannot be read by this role' using errcode = 'DDCON';
  end if;
  -- For queues: what may be claimed.
  if seq is distinct from p_seq then
    select coalesce(array_agg(s.id), '{}') into ready
    from unnest(p_subscriptions, p_floors) s(id, floor)
    cross join lateral (
      select from deed.pending p
      where p.subscription = s.id and p.dead_at is null and not p.parked
        and p.ord >= s.floor and p.ord <= v_now
        and (p.lease_until is null or p.lease_until <= v_now)
      order by p.ord, p.id
      limit 1
    ) due;
    streams := array(select s.id from deed.subscriptions s where s.id = any (p_subscriptions) and s.since is not null);
  end if;
  if p_window is null then
    return next;
    return;
  end if;

  -- For streams: is there anything that the last window does not show?
  select w.n, w.base, w.h, w.cur, w.upper, w.system_identifier into v_last from deed.windows w order by w.n desc limit 1;
  if p_window = 0 then
    v_news := v_last.system_identifier <> (select c.system_identifier from pg_control_system() c);
  end if;
  v_news := v_news or seq <> v_last.upper;
  if not v_news then
    select pg_current_snapshot() into v_snap;
    v_news := exists (
      select
      from unnest(deed.late_xids(v_last.cur, v_last.h, v_snap)) ran(xid)
      where exists (select from deed.log l where l.xid = ran.xid)
    );
  end if;
  if not v_news and v_last.upper > v_last.base then
    -- Whoever took its id after that window's, and its number before its upper.
    v_news := exists (
      select
      from deed.log l
      where l.xid >= v_last.h and l.xid < pg_snapshot_xmax(v_snap) and l.id > v_last.base
        and not pg_visible_in_snapshot(l.xid, v_last.cur)
    );
  end if;
  -- The window to read up to: one that is opened now, or one that another has opened.
  if v_news then
    window_n := deed.open_window('try');
  end if;
  if window_n is null and (v_last.n > p_window or p_window = 0 or (v_last.n, v_last.h) is distinct from (p_window, p_window_h)) then
    window_n := v_last.n;
  end if;
  if window_n is null then
    return next;
    return;
  end if;
  select w.h into window_h from deed.windows w where w.n = window_n;

  -- What lies between the two, and whether it is so little that it comes with it.
  select w.base, w.h, w.system_identifier into v_from from deed.windows w where w.n = p_window and w.h = p_window_h;
  select w.n, w.upper, w.cur, w.system_identifier into v_last from deed.windows w where w.n = window_n;
  if v_from.base is not null and v_from.system_identifier = v_last.system_identifier then
    select l.xids, l.low into late, low from deed.window_late(p_window, p_window_h, window_n, window_h) l;
    if low = v_from.base and v_last.upper - low <= 2000 then
      -- More than are owed, perhaps, but no fewer.
      select coalesce(array_agg(distinct f.slot), '{}'), count(*), sum(f.bytes) into slots, v_count, v_bytes
      from (
        select l.slot, l.bytes
        from unnest(late) e(xid)
        cross join lateral (
          select l.slot, octet_length(l.payload) + octet_length(concat(l.key, l.type, l.headers)) as bytes from deed.log l where l.xid = e.xid
        ) l
        union all
        select l.slot, octet_length(l.payload) + octet_length(concat(l.key, l.type, l.headers))
        from deed.log l
        where l.xid >= v_from.h and l.xid < pg_snapshot_xmax(v_last.cur) and l.id > low and l.id <= v_last.upper
      ) f;
      -- No more than a socket takes at once: while the answer is on its way the
      -- window is not committed, and all others wait for it.
      whole := (coalesce(v_bytes, 0) + 200 * v_count) * (select count(*) from unnest(p_slot_from) f where f is not null) <= 50000;
    end if;
  end if;
  return next;
  if whole and v_count > 0 then
    return query
    select null::bigint, null::int[], null::int[], null::bigint, null::xid8, null::int[], null::bigint, null::xid8[], null::boolean,
      s.id, p.place_slot, p.slot, p.id, p.tenant_id, p.key, p.type, p.content_type, p.headers, p.payload, p.created_at, p.due
    from unnest(p_subscriptions, p_slot_from, p_slot_upto) s(id, slot_from, slot_upto)
    cross join lateral deed.page(s.id, s.slot_from, s.slot_upto, p_window, p_window_h, window_n, window_h, -2, 0, 251, low, late) p
    where s.slot_from is not null
      and exists (select from unnest(slots) f(slot) where f.slot between s.slot_from and s.slot_upto);
  end if;
end
$$;
