-- deed.tally: add up what was delivered since the last time, up to p_most receipts,
-- into deed.delivered; returns how many there were.
--
-- Numbers are given before their transactions commit, so receipts are added up to
-- a number that was the highest when it was noted, once all transactions have ended
-- that had an id then: whoever had a lower number was among them, as a receipt's
-- transaction has its id before the number. Those are the ids below this one's, which
-- it takes after looking for the number; what a snapshot calls its xmax is not enough,
-- since transactions may run above it. In a transaction that has an id already it
-- notes nothing. Safe on any number of processes; where another is at it, it returns
-- at once.
create or replace function deed.tally(
  p_most int default 20000
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  c_older constant int := 10; -- receipts of undeclared topics that do not say which: the log is searched
  v_early boolean := pg_current_xact_id_if_assigned() is null;
  v_last  bigint := (select max(r.n) from deed.receipts r);
  v_t     deed.tallied%rowtype;
  v_count int := 0;
  v_upto  bigint;
begin
  select t.* into v_t from deed.tallied t for update skip locked;
  if not found then
    return 0;
  end if;
  if v_t.noted_n > v_t.upto_n and v_t.noted_xid <= (
    -- The oldest that runs, but for this one.
    select coalesce(min(x.xid), pg_snapshot_xmax(pg_current_snapshot())) from pg_snapshot_xip(pg_current_snapshot()) x(xid)
  ) then
    select count(*), max(q.n) into v_count, v_upto
    from (
      select r.n from deed.receipts r where r.n > v_t.upto_n and r.n <= v_t.noted_n order by r.n limit p_most
    ) q;
    if v_count < p_most then
      v_upto := v_t.noted_n;
    end if;
    select case when count(*) = c_older then max(q.n) else v_upto end into v_upto
    from (
      select r.n
      from deed.receipts r
      where r.n > v_t.upto_n and r.n <= v_upto and r.subscription = 0 and r.topics is null and r.finished > 0
      order by r.n
      limit c_older
    ) q;
    insert into deed.delivered as d (subscription, topic, delivered, last_at)
    select f.subscription, f.topic, sum(f.n), max(f.finished_at)
    from (
      select r.subscription, '' as topic, r.finished + r.gone as n, r.finished_at
      from deed.receipts r
      join deed.subscriptions s on s.id = r.subscription and s.id <> 0
      where r.n > v_t.upto_n and r.n <= v_upto and r.outcome = 'delivered' and r.finished + r.gone > 0
      union all
      select 0, t.topic, t.n::int, r.finished_at
      from deed.receipts r
      cross join lateral jsonb_each_text(r.topics) t(topic, n)
      where r.n > v_t.upto_n and r.n <= v_upto and r.subscription = 0 and r.outcome = 'delivered'
      union all
      select 0, l.topic, 1, r.finished_at
      from deed.receipts r
      cross join lateral unnest(r.ids) i(id)
      cross join lateral (
        select g.topic from deed.log g where g.slot between 0 and 63 and g.id = i.id
        union all
        select k.topic from deed.kept k where k.slot between 0 and 63 and k.id = i.id
        limit 1
      ) l
      where r.n > v_t.upto_n and r.n <= v_upto and r.subscription = 0 and r.outcome = 'delivered' and r.topics is null
    ) f
    group by f.subscription, f.topic
    on conflict (subscription, topic) do update
      set delivered = d.delivered + excluded.delivered, last_at = greatest(d.last_at, excluded.last_at);
    v_t.upto_n := v_upto;
    update deed.tallied t set upto_n = v_upto;
  end if;
  -- Of another cluster's transactions, as after a restore, nobody waits for the end.
  if v_early and v_last > v_t.upto_n and (v_t.noted_n = v_t.upto_n or v_t.noted_xid >= pg_snapshot_xmax(pg_current_snapshot())) then
    update deed.tallied t set noted_n = v_last, noted_xid = pg_current_xact_id();
  end if;
  return v_count;
end
$$;
