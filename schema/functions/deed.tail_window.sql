-- deed.tail_window: where the messages are that have committed between two snapshots,
-- among the next p_numbers numbers above p_from and up to p_upto: by number, and up to
-- which that is (upto).
--
-- What lies between the numbers is read, by the summaries of the pages
-- (log_pN_id_idx), and once a step those pages that have none yet: so a step is of
-- many numbers. The last one of a partition reaches to its end, which is far.
create or replace function deed.tail_window(
  p_from    bigint,
  p_upto    bigint,
  p_seen    pg_snapshot,
  p_now     pg_snapshot,
  p_topic   text default null,
  p_numbers int default 100000
) returns table (upto bigint, slots int[], ids bigint[])
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_indexscan = off
set jit = off
as $$
  with bound as materialized (
    select coalesce((
      select least(p_upto, case when greatest(p_from, e.from_id) + p_numbers < e.last_id then greatest(p_from, e.from_id) + p_numbers else e.upto_id end)
      from deed.log_extents() e
      where e.upto_id > p_from
      order by e.from_id
      limit 1
    ), p_upto) as upto
  )
  select (select b.upto from bound b), array_agg(l.slot order by l.id), array_agg(l.id order by l.id)
  from deed.log l
  where l.id > p_from and l.id <= (select b.upto from bound b)
    and pg_visible_in_snapshot(l.xid, p_now) and not pg_visible_in_snapshot(l.xid, p_seen)
    and (p_topic is null or l.topic = p_topic)
$$;
