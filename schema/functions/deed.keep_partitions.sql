-- deed.keep_partitions: have partitions of the log, and of the logs of runs
-- (deed.keep_run_partitions), made ahead of need, and open the log's
-- next one once a day, so that retention can drop whole days.
--
-- Publishers never wait for it: a partition is made as a plain table and then
-- attached, which takes no lock that an insert would stand behind. Safe on any
-- number of processes; one that finds another at it returns at once. Returns
-- how many it made.
--
-- Also brings the version up to which lists of subscriptions are settled level
-- with its sequence: publishers under REPEATABLE READ compare the two.
create or replace function deed.keep_partitions(
  p_ahead int default 2
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  c_size    constant bigint := 68719476736; -- 2^36 ids
  v_current int;
  v_n       int;
  v_made    int := 0;
  v_opens   boolean := false;
  v_name    text;
  v_grantee text;
begin
  begin
    lock table deed.partition_lock in share update exclusive mode nowait;
  exception when lock_not_available then
    return 0;
  end;

  v_current := pg_sequence_last_value('deed.log_seq') / c_size;
  if exists (
      select from deed.partitions p
      where p.n = v_current and p.opened_at < clock_timestamp() - interval '1 day'
        and pg_sequence_last_value('deed.log_seq') between p.from_id + 2 and p.upto_id - c_size / 2
    )
    and exists (select from deed.partitions p where p.n = v_current + 1)
  then
    v_current := v_current + 1;
    v_opens := true;
  end if;

  for v_n in v_current..v_current + greatest(p_ahead, 1) loop
    v_name := 'log_p' || v_n;
    if exists (select from deed.partitions p where p.n = v_n) then
      -- One that a deed from before the index made while a migration brought it.
      if v_n > v_current and to_regclass(format('deed.%I', v_name || '_id_idx')) is null then
        execute format('create index %I on deed.%I using brin (id) with (pages_per_range = 32)', v_name || '_id_idx', v_name);
      end if;
      continue;
    end if;
    execute format('create table deed.%I (like deed.log including all)', v_name);
    execute format('create index %I on deed.%I using brin (id) with (pages_per_range = 32)', v_name || '_id_idx', v_name);
    execute format('alter table deed.%I add constraint log_partition check (id >= %s and id < %s)', v_name, v_n * c_size, (v_n + 1) * c_size);
    execute format('alter table deed.%I enable row level security', v_name);
    execute format('alter table deed.%I force row level security', v_name);
    -- Default privileges of the owner may have granted something.
    for v_grantee in
      select distinct case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
      from pg_class c, aclexplode(c.relacl) a
      where c.oid = format('deed.%I', v_name)::regclass and a.grantee <> c.relowner
    loop
      execute format('revoke all on deed.%I from %s', v_name, v_grantee);
    end loop;
    execute format('alter table deed.log attach partition deed.%I for values from (%s) to (%s)', v_name, v_n * c_size, (v_n + 1) * c_size);
    insert into deed.partitions (n, from_id, upto_id) values (v_n, v_n * c_size, (v_n + 1) * c_size);
    v_made := v_made + 1;
  end loop;
  update deed.partitions p set opened_at = clock_timestamp() where p.n = v_current and p.opened_at is null;
  v_made := v_made + deed.keep_run_partitions(p_ahead);
  perform deed.level_list(); -- so late, as its lock is held until the end
  if v_opens then
    -- Last, as it outlasts a transaction that fails, and last_id does not: nobody would note any more where the partition ends.
    update deed.partitions p set last_id = pg_sequence_last_value('deed.log_seq') where p.n = v_current - 1;
    perform setval('deed.log_seq', v_current * c_size);
  end if;
  return v_made;
end
$$;
