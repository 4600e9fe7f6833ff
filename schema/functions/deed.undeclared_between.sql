-- deed.undeclared_between: the first p_limit messages, by number, of those above
-- p_from and up to p_upto that were published to the topic while nobody had declared
-- it, those among them that retention has moved out of the log included.
--
-- All such topics share their slots, so no index finds one's. What lies between is
-- read by the summaries of the pages (log_pN_id_idx), which no other kind of plan
-- reads: the caller bounds the numbers.
create or replace function deed.undeclared_between(
  p_topic text,
  p_from  bigint,
  p_upto  bigint,
  p_limit int
) returns table (slot int, id bigint, xid xid8, list_version bigint)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_indexscan = off
set enable_bitmapscan = on -- which the caller has off
set jit = off
as $$
  select q.slot, q.id, q.xid, q.list_version
  from (
    select l.slot, l.id, l.xid, l.list_version
    from deed.log l
    where l.id > p_from and l.id <= p_upto and l.slot + 0 < 64 and l.topic = p_topic -- by no index that begins with the slot
    union all
    select k.slot, k.id, k.xid, k.list_version
    from deed.kept k
    where k.id > p_from and k.id <= p_upto and k.slot < 64 and k.topic = p_topic
  ) q
  order by q.id
  limit p_limit
$$;
