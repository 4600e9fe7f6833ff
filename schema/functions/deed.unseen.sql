-- deed.unseen: whether the log has a message with an id from p_from up to but
-- not p_upto, of those slots and from that version of the list on, that the
-- snapshot does not see.
--
-- What came with another cluster counts as seen: see deed.page. What is above
-- p_upper, up to where the snapshot's window goes, does not, whatever its
-- transaction id looks like: it may be of a later cluster, whose ids are lower.
-- Costs a few looks at the index of transaction ids where there is none, and one
-- a slot where the window ends before p_upto.
create or replace function deed.unseen(
  p_from        bigint,
  p_upto        bigint,
  p_slot_from   int,
  p_slot_upto   int,
  p_since       bigint,
  p_cur         pg_snapshot,
  p_restored_id bigint default 0,
  p_restored_h  xid8 default '0',
  p_upper       bigint default null
) returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
begin
  if coalesce(p_upper, p_upto) < p_upto - 1 and exists (
    select
    from generate_series(p_slot_from, p_slot_upto) s(slot)
    cross join lateral (
      select l.id
      from deed.log l
      where l.slot = s.slot and l.id > p_upper and l.id >= p_from and l.id < p_upto and l.list_version >= p_since
      order by l.slot, l.id
      limit 1
    ) l
  ) then
    return true;
  end if;
  return exists (
      select from deed.log l
      where l.slot between p_slot_from and p_slot_upto and l.id >= p_from and l.id < p_upto
    )
    and exists (
      select
      from (
        select l.*
        from pg_snapshot_xip(p_cur) e(xid)
        cross join lateral (
          select l.* from deed.log l where l.xid = e.xid and l.id >= p_from and l.id < p_upto offset 0
        ) l
        union all
        select l.*
        from deed.log l
        where l.xid >= pg_snapshot_xmax(p_cur) and l.id >= p_from and l.id < p_upto
          and (p_upto - 1 > p_restored_id or l.xid < p_restored_h)
      ) l
      where l.slot between p_slot_from and p_slot_upto and l.list_version >= p_since
        and not (l.id <= p_restored_id and l.xid >= p_restored_h)
    );
end
$$;
