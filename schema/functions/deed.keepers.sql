-- deed.keepers: what keeps a partition of the log, besides messages that are
-- not finished: those are moved out of it. No row: it may go.
--
--   in use    no later one has been opened
--   young     one of its topics is to be kept longer; until says how long
--   stream    a lane, or a stream that nobody reads yet, has still to read in it
--   backfill  a subscription is still being brought what was published before it
create or replace function deed.keepers(
  p_n int
) returns table (what text, subscription int, lane int, until timestamptz)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_p      record;
  v_now    timestamptz := clock_timestamp();
  v_longer interval;
  v_system bigint;
begin
  -- Its youngest message is no younger than the next partition is open.
  select p.from_id, p.upto_id, (select min(o.opened_at) from deed.partitions o where o.n > p.n) as closed_at into v_p
  from deed.partitions p
  where p.n = p_n;
  if v_p.closed_at is null then
    return query select 'in use', null::int, null::int, null::timestamptz;
    return;
  end if;

  select max(k.retention) into v_longer
  from (
    select 0 as slot_base, s.retention from deed.settings s
    union all
    select t.slot_base, t.retention from deed.topics t
  ) k
  where v_p.closed_at > v_now - k.retention
    and exists (
      select from deed.log l
      where l.slot between k.slot_base and k.slot_base + 63 and l.id >= v_p.from_id and l.id < v_p.upto_id
    );
  if v_longer is not null then
    return query select 'young', null::int, null::int, v_p.closed_at + v_longer;
  end if;

  return query
  select 'stream', l.subscription, l.lane, null::timestamptz
  from (
    select l.subscription, l.lane, l.slot_from, l.slot_upto from deed.lanes l
    union all
    select s.id, null, t.slot_base, t.slot_base + 63
    from deed.subscriptions s
    join deed.topics t on t.topic = s.topic
    where s.since is not null and not exists (select from deed.lanes l where l.subscription = s.id)
  ) l
  join deed.subscriptions s on s.id = l.subscription and s.since is not null
  left join lateral (
    select g.from_window
    from deed.progress g
    where g.subscription = l.subscription and g.lane = l.lane
    order by g.n desc
    limit 1
  ) at on true
  left join deed.windows w on w.n = coalesce(at.from_window, s.since_window)
  where w.n is null
    or deed.unseen(v_p.from_id, v_p.upto_id, l.slot_from, l.slot_upto, s.since, w.cur, w.restored_id, w.restored_h, w.upper)
  order by l.subscription, l.lane;

  select c.system_identifier into v_system from pg_control_system() c;
  return query
  select 'backfill', b.subscription, null::int, null::timestamptz
  from deed.backfills b
  join deed.subscriptions s on s.id = b.subscription
  left join deed.windows w on w.n = b.window_n
  where b.finished_at is null and (w.n is null or w.upper >= v_p.from_id)
    and (w.n is null or not b.scanned or w.system_identifier <> v_system
      or exists (
        select
        from (
          select l.topic
          from pg_snapshot_xip(b.seen) e(xid)
          cross join lateral (
            select l.topic from deed.log l where l.xid = e.xid and l.id >= v_p.from_id and l.id < v_p.upto_id offset 0
          ) l
          where e.xid < w.h
          union all
          select l.topic
          from deed.log l
          where l.xid >= pg_snapshot_xmax(b.seen) and l.xid < w.h and l.id >= v_p.from_id and l.id < v_p.upto_id
        ) l
        where l.topic = s.topic
      ))
  order by b.subscription;
end
$$;
