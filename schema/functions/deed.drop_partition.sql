-- deed.drop_partition: drop the table of a partition that was emptied, whether
-- it is attached, being detached or detached. For deed.retention_step.
--
-- A row that came after it was emptied, by a publisher that had its number from
-- before, is not lost: then the partition begins to go anew.
create or replace function deed.drop_partition(
  p_n int
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '20ms'
as $$
declare
  v_name     text := 'log_p' || p_n;
  v_attached boolean;
  v_pending  boolean;
  v_full     boolean;
begin
  if to_regclass(format('deed.%I', v_name)) is null then
    update deed.partitions p set dropped_at = clock_timestamp() where p.n = p_n;
    return 'dropped';
  end if;
  select count(*) > 0, coalesce(bool_or(i.inhdetachpending), false) into v_attached, v_pending
  from pg_inherits i
  where i.inhrelid = to_regclass(format('deed.%I', v_name));
  begin
    if v_pending then
      execute format('alter table deed.log detach partition deed.%I finalize', v_name);
      v_attached := false;
    elsif v_attached then
      lock table only deed.log in access exclusive mode;
    end if;
    execute format('lock table deed.%I in access exclusive mode', v_name);
  exception when lock_not_available then
    update deed.partitions p set tried_at = clock_timestamp() where p.n = p_n;
    return 'waits';
  end;
  -- Row-level security would hide the rows: a partition has no policy of its own.
  execute format('alter table deed.%I no force row level security', v_name);
  execute format('select exists (select from deed.%I)', v_name) into v_full;
  if v_full then
    execute format('alter table deed.%I force row level security', v_name);
    if not v_attached then
      execute format('alter table deed.log attach partition deed.%I for values from (%s) to (%s)', v_name,
        (select p.from_id from deed.partitions p where p.n = p_n), (select p.upto_id from deed.partitions p where p.n = p_n));
    end if;
    update deed.partitions p set emptied_at = null, moved_at = null, moving = null where p.n = p_n;
    return 'began';
  end if;
  execute format('drop table deed.%I', v_name);
  update deed.partitions p set dropped_at = clock_timestamp(), tried_at = null where p.n = p_n;
  return 'dropped';
end
$$;
