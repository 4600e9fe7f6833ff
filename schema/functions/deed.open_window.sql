-- deed.open_window: mark a point in the log and return its number.
--
-- In this order, each a statement of its own: base, a transaction id of our
-- own, the snapshot, upper. Whoever takes a transaction id from h on gets
-- numbers above base; whoever is visible in cur has numbers up to upper.
-- Raises DDCON when the sequence went back, or another cluster is behind it.
create or replace function deed.open_window() returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_base   bigint;
  v_h      xid8;
  v_cur    pg_snapshot;
  v_upper  bigint;
  v_prev   record;
  v_system bigint;
  v_n      bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'open_window: a window needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  -- One at a time, so that windows are in the order of their numbers.
  perform pg_advisory_xact_lock(hashtextextended('deed.open_window', 0));
  v_base := pg_sequence_last_value('deed.log_seq');
  v_h := pg_current_xact_id();
  select pg_current_snapshot() into v_cur;
  v_upper := pg_sequence_last_value('deed.log_seq');
  select c.system_identifier into v_system from pg_control_system() c;
  select w.upper, w.system_identifier, w.restored_id into v_prev from deed.windows w order by w.n desc limit 1;
  if v_base is null or v_upper is null or v_upper < v_base
    or (v_prev.upper is not null and v_base < v_prev.upper and v_prev.system_identifier = v_system)
  then
    raise exception 'open_window: the sequence deed.log_seq went back (base %, upper %, last window''s upper %)',
      v_base, v_upper, v_prev.upper
      using errcode = 'DDCON', hint = 'Set it above the highest id of deed.log before anything is published.';
  end if;
  insert into deed.windows (base, h, cur, upper, system_identifier, restored_id)
  values (
    v_base, v_h, v_cur, v_upper, v_system,
    case when v_prev.system_identifier <> v_system then v_upper else coalesce(v_prev.restored_id, 0) end
  )
  returning n into v_n;
  return v_n;
end
$$;
