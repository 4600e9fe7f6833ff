-- deed.purge_history: forget what is known of messages that are gone.
--
-- Up to p_limit rows of each table a call, and how many of each were removed:
-- as many as p_limit means that there may be more.
--   receipts  past their topic's retention, if all that they name lies below the
--             oldest partition that has its content, and what was taken out to the last (deed.take_receipts)
--             once it is added up; they stay in deed.delivered
--   progress  past their topic's retention, but for each lane's newest row; of a
--             subscription that was removed that too
--   windows   past the longest retention, but for the newest and those at which
--             something begins or stands
--   relays    that have not been seen for a day
--   removals  of subscriptions and topics that are over, once the log has nothing
--             left of the time before
create or replace function deed.purge_history(
  p_limit int default 5000
) returns table (what text, removed int)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
set enable_seqscan = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_floor   bigint;
  v_longest interval;
  v_old     bigint[];
  v_lane    record;
  v_count   int;
  v_kept    bigint;
  v_tallied bigint;
begin
  begin
    lock table deed.history_lock in share update exclusive mode nowait;
  exception when lock_not_available then
    return;
  end;
  select min(p.from_id) into v_floor from deed.partitions p where p.emptied_at is null;
  select greatest(max(s.retention), (select max(t.retention) from deed.topics t)) into v_longest from deed.settings s;

  -- What is not added up yet is added here; where somebody is at that, it stays.
  select t.upto_n into v_tallied from deed.tallied t for update skip locked;
  what := 'receipts';
  with gone as (
    delete from deed.receipts r
    where r.n = any (array(
      select o.n
      from deed.receipts o
      left join deed.subscriptions s on s.id = o.subscription
      left join deed.topics t on t.topic = coalesce(s.topic, (
        select r.topic from deed.removals r where r.subscription = o.subscription and o.subscription <> 0
      ))
      cross join deed.settings c
      where o.finished > 0 and v_tallied is not null and int8range(o.min_id, o.max_id, '[]') << int8range(v_floor, null)
        and o.finished_at < v_now - coalesce(t.retention, c.retention)
      limit p_limit
    )) or r.n = any (array(
      select o.n from deed.receipts o
      where o.finished = 0 and case when o.gone > 0 then o.n <= v_tallied else o.finished_at < v_now - v_longest end
      order by o.finished_at
      limit p_limit
    ))
    returning r.n, r.subscription, r.outcome, r.finished + r.gone as finished, r.finished_at, r.topics
  ),
  added as (
    insert into deed.delivered as d (subscription, topic, delivered, last_at)
    select f.subscription, f.topic, sum(f.n), max(f.finished_at)
    from (
      select g.subscription, '' as topic, g.finished as n, g.finished_at
      from gone g
      join deed.subscriptions s on s.id = g.subscription and s.id <> 0
      where g.n > v_tallied and g.outcome = 'delivered'
      union all
      select 0, t.topic, t.n::int, g.finished_at
      from gone g
      cross join lateral jsonb_each_text(g.topics) t(topic, n)
      where g.n > v_tallied and g.subscription = 0 and g.outcome = 'delivered'
    ) f
    group by f.subscription, f.topic
    on conflict (subscription, topic) do update
      set delivered = d.delivered + excluded.delivered, last_at = greatest(d.last_at, excluded.last_at)
  )
  select count(*) into removed from gone;
  return next;

  -- What nobody declared, and nobody publishes any more.
  delete from deed.delivered d where d.subscription = 0 and d.last_at < v_now - v_longest;

  -- The oldest rows of each lane, which are the first by number.
  what := 'progress';
  removed := 0;
  for v_lane in
    with recursive lanes as (
      (select g.subscription, g.lane from deed.progress g order by g.subscription, g.lane limit 1)
      union all
      select n.subscription, n.lane
      from lanes l
      cross join lateral (
        select g.subscription, g.lane from deed.progress g
        where (g.subscription, g.lane) > (l.subscription, l.lane)
        order by g.subscription, g.lane
        limit 1
      ) n
    )
    select l.subscription, l.lane, v_now - coalesce(t.retention, c.retention) as upto, s.id is null and r.finished_at is not null as removed,
      (
        select g.n from deed.progress g
        where g.subscription = l.subscription and g.lane = l.lane
        order by g.n desc
        limit 1
      ) as newest
    from lanes l
    cross join deed.settings c
    left join deed.subscriptions s on s.id = l.subscription
    left join deed.removals r on r.subscription = l.subscription
    left join deed.topics t on t.topic = coalesce(s.topic, r.topic)
  loop
    exit when removed >= p_limit;
    delete from deed.progress g
    where g.subscription = v_lane.subscription and g.lane = v_lane.lane and (g.n < v_lane.newest or v_lane.removed)
      and g.finished_at < v_lane.upto
      and g.n = any (array(
        select o.n from deed.progress o
        where o.subscription = v_lane.subscription and o.lane = v_lane.lane
        order by o.n
        limit p_limit - removed
      ));
    get diagnostics v_count = row_count;
    if v_count > 0 then
      select g.n into v_kept from deed.progress g
      where g.subscription = v_lane.subscription and g.lane = v_lane.lane
      order by g.n
      limit 1;
      if v_kept is null then
        delete from deed.former_lanes l where l.subscription = v_lane.subscription and l.lane = v_lane.lane;
        removed := removed + v_count;
        continue;
      end if;
      update deed.lanes l set kept_from = v_kept where l.subscription = v_lane.subscription and l.lane = v_lane.lane;
      update deed.former_lanes l set kept_from = v_kept where l.subscription = v_lane.subscription and l.lane = v_lane.lane;
    end if;
    removed := removed + v_count;
  end loop;
  return next;

  -- A lane that nothing concerns stands at an old one for ever, so age decides.
  -- No lane may come to stand at one that goes: while they go, none records
  -- anything. One whose page is so old finds its window gone, and reads again.
  what := 'windows';
  removed := 0;
  v_old := array(
    select w.n from deed.windows w
    where w.n <> 0 and w.opened_at < v_now - v_longest
      and not exists (select from deed.subscriptions s where w.n in (s.start_window, s.since_window, s.read_window))
      and not exists (select from deed.backfills b where b.window_n = w.n)
      and not exists (select from deed.relanings r where r.window_n = w.n)
    order by w.n
    limit p_limit
  );
  if cardinality(v_old) > 0 then
    begin
      lock table deed.progress in share mode;
      delete from deed.windows w
      where w.n = any (v_old) and w.n < (select max(o.n) from deed.windows o)
        -- Once more: what a lane stood at may have become its subscription's meanwhile.
        and not exists (select from deed.subscriptions s where w.n in (s.start_window, s.since_window, s.read_window))
        and not exists (select from deed.backfills b where b.window_n = w.n)
        and not exists (select from deed.relanings r where r.window_n = w.n)
        and not exists (
          select from deed.lanes l
          cross join lateral (
            select g.from_window, g.to_window
            from deed.progress g
            where g.subscription = l.subscription and g.lane = l.lane
            order by g.n desc
            limit 1
          ) at
          where w.n in (at.from_window, at.to_window, l.paused_at)
        );
      get diagnostics removed = row_count;
    exception when lock_not_available then
      null; -- the next time
    end;
  end if;
  return next;

  what := 'relays';
  delete from deed.relays r where r.seen_until < v_now - interval '1 day';
  get diagnostics removed = row_count;
  return next;

  what := 'removals';
  delete from deed.removals r
  where r.n = any (array(
    select o.n from deed.removals o
    where o.log_id < v_floor and o.finished_at < v_now - v_longest
      and not exists (select from deed.progress g where g.subscription = o.subscription)
    order by o.n
    limit p_limit
  ));
  get diagnostics removed = row_count;
  return next;
end
$$;
