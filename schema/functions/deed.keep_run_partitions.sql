-- deed.keep_run_partitions: have partitions of run_log made ahead of need: this week's, and
-- p_ahead more. For deed.keep_partitions, under its lock; made as those of the log are, so
-- that nobody who appends waits. Returns how many it made.
--
-- A run id begins with its time in milliseconds, so a week of runs is a range of ids. Its
-- events come later, and into the same partition.
create or replace function deed.keep_run_partitions(
  p_ahead int default 2
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  c_week    constant bigint := 604800000; -- milliseconds
  v_current int := floor(extract(epoch from clock_timestamp()) * 1000 / c_week);
  v_made    int := 0;
  v_name    text;
  v_from    uuid;
  v_upto    uuid;
  v_grantee text;
begin
  for v_n in v_current..v_current + greatest(p_ahead, 1) loop
    continue when exists (select from deed.run_partitions p where p.n = v_n);
    v_name := 'run_log_w' || v_n;
    v_from := (lpad(to_hex(v_n * c_week), 12, '0') || repeat('0', 20))::uuid;
    v_upto := (lpad(to_hex((v_n + 1) * c_week), 12, '0') || repeat('0', 20))::uuid;
    execute format('create table deed.%I (like deed.run_log including all)', v_name);
    execute format('alter table deed.%I add constraint run_log_partition check (run_id >= %L and run_id < %L)', v_name, v_from, v_upto);
    execute format('alter table deed.%I enable row level security', v_name);
    execute format('alter table deed.%I force row level security', v_name);
    execute format('create trigger run_log_truncate before truncate on deed.%I for each statement execute function deed.refuse_run_change()', v_name);
    -- Default privileges of the owner may have granted something.
    for v_grantee in
      select distinct case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
      from pg_class c, aclexplode(c.relacl) a
      where c.oid = format('deed.%I', v_name)::regclass and a.grantee <> c.relowner
    loop
      execute format('revoke all on deed.%I from %s', v_name, v_grantee);
    end loop;
    execute format('alter table deed.run_log attach partition deed.%I for values from (%L) to (%L)', v_name, v_from, v_upto);
    insert into deed.run_partitions (n, from_id, upto_id) values (v_n, v_from, v_upto);
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
