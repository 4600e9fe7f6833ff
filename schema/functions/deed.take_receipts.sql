-- deed.take_receipts: take messages that are gone out of the receipts that name them. For
-- deed.purge and deed.take_tenant_log.
--
-- Others may be doing so with the same receipts: these are locked, in order, before what is left of
-- them is computed. Nothing else is: it runs in a user's transaction, which may stay open. What is
-- taken out stays counted in the receipt (gone), and one of which nothing is left stays until it is
-- added up: what deed.tally adds is the same before and after. One that was added up just now may
-- stay, too: deed.purge_history removes it.
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
  v_tallied bigint := (select t.upto_n from deed.tallied t);
begin
  perform from deed.receipts r where r.n = any (p_receipts) order by r.n for update;
  with changed as (
    select r.n, coalesce(array_agg(i.id order by i.n) filter (where g.id is null), '{}') as ids,
      array_agg(r.attempts[i.n] order by i.n) filter (where g.id is null) as attempts,
      count(*) = count(g.id) and (r.n <= v_tallied or r.outcome <> 'delivered') as spent
    from deed.receipts r
    cross join lateral unnest(r.ids) with ordinality i(id, n)
    left join unnest(p_ids) g(id) on g.id = i.id
    where r.n = any (p_receipts)
    group by r.n
  ),
  removed as (
    delete from deed.receipts r using changed c where r.n = c.n and c.spent
  )
  update deed.receipts r
  set ids = c.ids, attempts = case when r.attempts is not null then c.attempts end, finished = cardinality(c.ids),
    gone = r.gone + r.finished - cardinality(c.ids),
    min_id = (select min(i) from unnest(c.ids) i), max_id = (select max(i) from unnest(c.ids) i)
  from changed c
  where r.n = c.n and not c.spent;
end
$$;
