-- deed.purge: remove the finished messages that this transaction has named in
-- deed.purges, with their receipts: what a DELETE on a face's relation does.
--
-- In one pass over the log, whatever their number. A message goes only when each
-- subscription that its topic has now has delivered or discarded it, and none is just
-- being put in the topic's list (deed.join_list); others stay until retention drops
-- their partition, and so does what a stream has gone past (deed.passed_by_stream).
-- Returns how many went.
create or replace function deed.purge() returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_ids      bigint[];
  v_receipts bigint[];
begin
  with asked as (
    delete from deed.purges p where p.xid = pg_current_xact_id() returning p.id
  ),
  finished as (
    select r.subscription, i.id
    from deed.receipts r
    cross join lateral unnest(r.ids) i(id)
    join asked a on a.id = i.id
  ),
  ended as (
    select l.slot, l.id
    from asked a
    join deed.log l on l.id = a.id
    left join deed.topics t on t.topic = l.topic
    where coalesce(t.mode, 'queue') = 'queue'
      and (t.topic is null or not deed.passed_by_stream(l.topic, l.slot, l.list_version))
      and not exists (
        select from unnest(coalesce(nullif(t.subscriptions, '{}'), '{0}')) s(id)
        where not exists (select from finished f where f.subscription = s.id and f.id = l.id)
      )
      and not exists (select from deed.subscriptions s where s.topic = l.topic and s.list_version is null)
  ),
  gone as (
    delete from deed.log l using ended e where l.slot = e.slot and l.id = e.id returning l.id
  )
  select array_agg(g.id) into v_ids from gone g;
  if v_ids is null then
    return 0;
  end if;
  v_receipts := array(
    select distinct r.n
    from deed.receipts r
    cross join lateral unnest(r.ids) i(id)
    join unnest(v_ids) g(id) on g.id = i.id
  );
  perform deed.take_receipts(v_receipts, v_ids);
  return cardinality(v_ids);
end
$$;
