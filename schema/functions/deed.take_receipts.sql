-- deed.take_receipts: take messages that are gone out of the receipts that name them. For
-- deed.purge and deed.take_tenant_log.
--
-- Others may be doing so with the same receipts: these are locked, in order, before what is left of
-- them is computed. What was delivered, and is not added up yet, is added up here, and nobody adds up
-- (deed.tally) until this has committed. Of topics that nobody declared a receipt says how many there were
-- while anything is left of it.
create or replace function deed.take_receipts(
  p_receipts bigint[],
  p_ids      bigint[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_tallied bigint; -- null: all of them are added up
begin
  if exists (select from unnest(p_receipts) n where n > (select t.upto_n from deed.tallied t)) then
    select t.upto_n into v_tallied from deed.tallied t for share;
  end if;
  perform from deed.receipts r where r.n = any (p_receipts) order by r.n for update;
  with changed as (
    select r.n, array_agg(i.id order by i.n) filter (where g.id is null) as ids,
      array_agg(r.attempts[i.n] order by i.n) filter (where g.id is null) as attempts,
      case when r.n > v_tallied and r.outcome = 'delivered' then count(g.id) end as delivered
    from deed.receipts r
    cross join lateral unnest(r.ids) with ordinality i(id, n)
    left join unnest(p_ids) g(id) on g.id = i.id
    where r.n = any (p_receipts)
    group by r.n
  ),
  emptied as (
    delete from deed.receipts r using changed c where r.n = c.n and c.ids is null
  ),
  added as (
    insert into deed.delivered as d (subscription, topic, delivered, last_at)
    select f.subscription, f.topic, sum(f.n), max(f.finished_at)
    from (
      select s.id as subscription, '' as topic, c.delivered as n, r.finished_at
      from changed c
      join deed.receipts r on r.n = c.n
      join deed.subscriptions s on s.id = r.subscription and s.id <> 0
      union all
      select 0, t.topic, t.n::bigint, r.finished_at
      from changed c
      join deed.receipts r on r.n = c.n
      cross join lateral jsonb_each_text(r.topics) t(topic, n)
      where r.subscription = 0 and c.ids is null and c.delivered is not null
    ) f
    where f.n > 0
    group by f.subscription, f.topic
    order by f.subscription, f.topic
    on conflict (subscription, topic) do update
      set delivered = d.delivered + excluded.delivered, last_at = greatest(d.last_at, excluded.last_at)
  )
  update deed.receipts r
  set ids = c.ids, attempts = case when r.attempts is not null then c.attempts end, finished = cardinality(c.ids),
    min_id = (select min(i) from unnest(c.ids) i), max_id = (select max(i) from unnest(c.ids) i)
  from changed c
  where r.n = c.n and c.ids is not null;
end
$$;
