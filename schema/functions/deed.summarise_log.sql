-- deed.summarise_log: tell the indexes by number which numbers are in the pages that
-- the log has filled since, at most 500 times 32 of them; returns how many were.
--
-- PostgreSQL does so when it vacuums, which is late for a table into which rows are
-- only inserted; until then a look by number reads them. The pages being filled are
-- left out, so that a publish has nothing to change. Safe on any number of
-- processes; where another is at it, or a vacuum, it returns at once.
create or replace function deed.summarise_log() returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c_range constant int := 32; -- pages, as log_pN_id_idx has it
  c_most  constant int := 500;
  v_p     record;
  v_upto  int;
  v_done  int := 0;
begin
  for v_p in
    select p.n, p.summarised, pg_relation_size(t.rel) / current_setting('block_size')::int / c_range as full, t.name, t.index
    from deed.partitions p
    cross join lateral (
      select 'log_p' || p.n as name, to_regclass('deed.log_p' || p.n) as rel, to_regclass('deed.log_p' || p.n || '_id_idx') as index
    ) t
    where p.emptied_at is null and p.from_id <= pg_sequence_last_value('deed.log_seq') and t.index is not null
      and pg_relation_size(t.rel) / current_setting('block_size')::int / c_range > p.summarised
    order by p.n desc
    for update of p skip locked
  loop
    begin
      -- A vacuum is not to be ended for it, as one that was waited for would be.
      execute format('lock table deed.%I in share update exclusive mode nowait', v_p.name);
    exception when lock_not_available or undefined_table then
      continue;
    end;
    v_upto := least(v_p.full, v_p.summarised + c_most - v_done);
    perform brin_summarize_range(v_p.index, r.n::bigint * c_range) from generate_series(v_p.summarised, v_upto - 1) r(n);
    update deed.partitions p set summarised = v_upto where p.n = v_p.n;
    v_done := v_done + v_upto - v_p.summarised;
    exit when v_done >= c_most;
  end loop;
  return v_done;
end
$$;
