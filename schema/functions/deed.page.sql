-- deed.page: read up to p_limit messages of a stream between two windows.
--
-- Owed are the rows of the slots that p_to sees and p_from does not. They come
-- in an order that never changes, so that a position in it is one slot and one
-- number, with those of one slot, hence of one key, by number:
--   slot -2  late rows, below p_from's base, by number (deed.window_late)
--   slot -1  if the window is small, all others by number
--   slot >= 0  else by stretches of 65,536 numbers and within them by slot
-- or, if very much is late, all of it by stretches. What is late is counted anew for each page, and what
-- has been removed since, as with a tenant, is not counted: so the places of such a step say so (c_all is added to the slot).
-- Begin with (-2, 0); fewer than p_limit rows, the window is read. place_slot
-- and id are the position after a row. due is false for a message that is to
-- wait for its process_after. What is of a tenant that is being removed is left out.
--
-- A row is seen by a window if its transaction is; and so are rows of another
-- cluster (dump and restore), which only the window's restored_id and
-- restored_h tell from this one's. Between windows of two clusters all above
-- p_from's base come, and may come again. Raises DDLSE as deed.window_late.
create or replace function deed.page(
  p_subscription int,
  p_slot_from    int,
  p_slot_upto    int,
  p_from         bigint,
  p_from_h       xid8,
  p_to           bigint,
  p_to_h         xid8,
  p_slot         int,
  p_id           bigint,
  p_limit        int,
  p_low          bigint default null,
  p_late         xid8[] default null
) returns table (
  place_slot int, slot int, id bigint, tenant_id uuid, key text, type text, content_type text, headers jsonb,
  payload bytea, created_at timestamptz, due boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  c_stretch constant bigint := 65536; -- positions are kept by it: never to be changed
  c_all     constant int := 1073741824; -- nor is this
  v_now   timestamptz := clock_timestamp();
  v_p     record;
  v_c     record;
  v_moved boolean;
  v_since bigint;
  v_gone  uuid[] := array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null);
  v_late  xid8[] := p_late;
  v_low   bigint := p_low;
  v_want  int := p_limit;
  v_got   int;
  v_upto  bigint;
  v_next  bigint;
  v_found boolean;
  v_mark  int := 0;
begin
  select w.base, w.h, w.cur, w.system_identifier, w.restored_id, w.restored_h into v_p
  from deed.windows w where w.n = p_from and w.h = p_from_h;
  select w.upper, w.cur, pg_snapshot_xmax(w.cur) as xmax, w.system_identifier, w.restored_id, w.restored_h into v_c
  from deed.windows w where w.n = p_to and w.h = p_to_h;
  select s.since into v_since from deed.subscriptions s where s.id = p_subscription;
  if v_low is null or v_p is null or v_c is null then
    select l.xids, l.low into v_late, v_low from deed.window_late(p_from, p_from_h, p_to, p_to_h) l;
  end if;
  v_moved := v_p.system_identifier <> v_c.system_identifier;
  if p_slot >= c_all or (p_slot >= 0 and p_id <= v_p.base) then -- the latter as places were before they said it
    v_low := 0;
    p_slot := p_slot % c_all;
  end if;
  if v_low < v_p.base then
    v_mark := c_all;
  end if;

  if p_slot = -2 and v_low = v_p.base and (v_moved or cardinality(v_late) > 0) then
    return query
    select -2, l.slot, l.id, l.tenant_id, l.key, l.type, l.content_type, l.headers, l.payload, l.created_at,
      l.process_after is null or l.process_after <= v_now
    from (
      select l.*
      from unnest(case when v_moved then array(select pg_snapshot_xip(v_p.cur)) else v_late end) e(xid)
      cross join lateral (
        select l.* from deed.log l where l.xid = e.xid and l.id <= v_p.base offset 0
      ) l
      union all
      select l.*
      from deed.log l
      where v_moved and l.xid >= pg_snapshot_xmax(v_p.cur) and l.id <= v_p.base
    ) l
    where l.slot between p_slot_from and p_slot_upto and l.id > p_id and l.list_version >= v_since and l.tenant_id <> all (v_gone)
      and (pg_visible_in_snapshot(l.xid, v_c.cur) or (l.id <= v_c.restored_id and l.xid >= v_c.restored_h))
      and not (pg_visible_in_snapshot(l.xid, v_p.cur) or (l.id <= v_p.restored_id and l.xid >= v_p.restored_h))
    order by l.id
    limit v_want;
    get diagnostics v_got = row_count;
    v_want := v_want - v_got;
  end if;

  if v_want > 0 and p_slot < 0 and not v_moved and v_c.upper - v_low <= 2000 then
    -- Few numbers: by transaction, in one look for all slots.
    return query
    select -1, l.slot, l.id, l.tenant_id, l.key, l.type, l.content_type, l.headers, l.payload, l.created_at,
      l.process_after is null or l.process_after <= v_now
    from (
      select l.*
      from unnest(v_late) e(xid)
      cross join lateral (
        select l.* from deed.log l where l.xid = e.xid and l.id > v_low and l.id <= v_c.upper offset 0
      ) l
      union all
      select l.*
      from deed.log l
      where l.xid >= v_p.h and l.xid < v_c.xmax and l.id > v_low and l.id <= v_c.upper
    ) l
    where l.slot between p_slot_from and p_slot_upto and (p_slot = -2 or l.id > p_id) and l.list_version >= v_since and l.tenant_id <> all (v_gone)
      and (pg_visible_in_snapshot(l.xid, v_c.cur) or (l.id <= v_c.restored_id and l.xid >= v_c.restored_h))
      and not (pg_visible_in_snapshot(l.xid, v_p.cur) or (l.id <= v_p.restored_id and l.xid >= v_p.restored_h))
    order by l.id
    limit v_want;
    return;
  end if;

  p_id := case when p_slot < 0 then v_low else p_id end;
  p_slot := greatest(p_slot, p_slot_from);
  v_next := case when p_id <= v_low then v_low else (p_id - 1) / c_stretch * c_stretch end; -- where the stretch begins
  while v_want > 0 and v_next < v_c.upper loop
    v_upto := least((v_next / c_stretch + 1) * c_stretch, v_c.upper);
    v_next := greatest(v_next, v_low);
    v_found := false;
    for v_slot in p_slot..p_slot_upto loop
      return query
      select l.slot + v_mark, l.slot, l.id, l.tenant_id, l.key, l.type, l.content_type, l.headers, l.payload, l.created_at,
        l.process_after is null or l.process_after <= v_now
      from deed.log l
      where l.slot = v_slot and l.id > case when v_slot = p_slot then greatest(p_id, v_next) else v_next end and l.id <= v_upto
        and l.list_version >= v_since and l.tenant_id <> all (v_gone)
        and (pg_visible_in_snapshot(l.xid, v_c.cur) or (l.id <= v_c.restored_id and l.xid >= v_c.restored_h))
        and ((v_moved and l.id > v_p.base)
          or not (pg_visible_in_snapshot(l.xid, v_p.cur) or (l.id <= v_p.restored_id and l.xid >= v_p.restored_h)))
      order by l.slot, l.id
      limit v_want;
      get diagnostics v_got = row_count;
      v_found := v_found or v_got > 0;
      v_want := v_want - v_got;
      if v_want <= 0 then
        return;
      end if;
    end loop;
    p_slot := p_slot_from;
    p_id := v_upto;
    v_next := v_upto;
    if not v_found then
      -- Over what other topics have: to the next number of these slots.
      select min(f.id) - 1 into v_next
      from generate_series(p_slot_from, p_slot_upto) s(slot)
      cross join lateral (
        select l.id from deed.log l where l.slot = s.slot and l.id > v_upto and l.id <= v_c.upper order by l.slot, l.id limit 1
      ) f;
      v_next := coalesce(v_next, v_c.upper);
      p_id := v_next;
    end if;
  end loop;
end
$$;
