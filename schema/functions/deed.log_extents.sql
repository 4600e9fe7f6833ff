-- deed.log_extents: the partitions of the log that have messages, newest first:
-- their numbers are above from_id and up to last_id, or little more where a
-- publisher came late, and below upto_id.
--
-- SECURITY DEFINER: an application looks at its messages, and may not read the
-- sequence.
create or replace function deed.log_extents() returns table (from_id bigint, last_id bigint, upto_id bigint)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select p.from_id, least(coalesce(p.last_id, p.upto_id - 1), top.id), least(p.upto_id - 1, top.id)
  from deed.partitions p
  cross join (select pg_sequence_last_value('deed.log_seq') as id) top
  where p.emptied_at is null and p.from_id <= top.id
  order by p.n desc
$$;
