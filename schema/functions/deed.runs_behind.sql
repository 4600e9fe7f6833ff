-- deed.runs_behind: the runs that are to be projected though no message says so, and up to
-- which event (deed.run_behind). What has been done by now, and what is of runs that are gone,
-- is taken out of the list. For projectors, every second.
create or replace function deed.runs_behind() returns table (
  run_id uuid, seq bigint
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  delete from deed.run_behind b
  where b.n = any (array(
    select o.n from deed.run_behind o
    where exists (select from deed.run_snapshots s where s.run_id = o.run_id and s.last_event_seq >= o.seq)
      or not exists (select from deed.runs r where r.run_id = o.run_id)
    for update skip locked
  ));
  return query
  select b.run_id, max(b.seq) from deed.run_behind b group by b.run_id;
end
$$;
