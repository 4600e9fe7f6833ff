-- deed.runs_behind: runs that are to be projected though no message says so, and up to
-- which event (deed.run_behind): a thousand notes at the most, from anywhere in the list on, so that those
-- which somebody keeps locked stand before nobody. What has been done by now, and what is of runs that are gone,
-- is taken out of it. For projectors, every second.
create or replace function deed.runs_behind() returns table (
  run_id uuid, seq bigint
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  c_most constant int := 1000;
  v_from bigint;
  v_some bigint[];
begin
  select min(b.n) + floor(random() * (max(b.n) - min(b.n) + 1))::bigint into v_from from deed.run_behind b;
  if v_from is null then
    return;
  end if;
  v_some := array(
    select s.n
    from (
      (select b.n from deed.run_behind b where b.n >= v_from order by b.n limit c_most)
      union all
      (select b.n from deed.run_behind b where b.n < v_from order by b.n limit c_most)
    ) s
    limit c_most
  );
  delete from deed.run_behind b
  where b.n = any (array(
    select o.n from deed.run_behind o
    where o.n = any (v_some)
      and (exists (select from deed.run_snapshots s where s.run_id = o.run_id and s.last_event_seq >= o.seq)
        or not exists (select from deed.runs r where r.run_id = o.run_id))
    for update skip locked
  ));
  return query
  select b.run_id, max(b.seq) from deed.run_behind b where b.n = any (v_some) group by b.run_id;
end
$$;
