-- deed.open_window: mark a point in the log and return its number.
--
-- In this order, each a statement of its own: base, a transaction id of our
-- own, the snapshot, upper. Whoever takes a transaction id from h on gets
-- numbers above base; whoever is visible in cur has numbers up to upper. Where
-- the caller's transaction already has an id, base is that of the last window
-- that was opened before it. restored_id is how far the log had come when this
-- cluster opened its first window after another one's (a restore, logical
-- replication). Raises DDCON when the sequence went back, and
-- DDARG for such a first window in a transaction that has an id already.
create or replace function deed.open_window() returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_base   bigint;
  v_first  bigint;
  v_h      xid8;
  v_cur    pg_snapshot;
  v_upper  bigint;
  v_prev   record;
  v_system bigint;
  v_n      bigint;
  v_moved  boolean;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'open_window: a window needs READ COMMITTED' using errcode = 'DDARG';
  end if;
  -- What is read up to a window must have been flushed (the window protocol's
  -- rule 12): otherwise a message that a crash takes back has been delivered.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  -- The lock below is held until the transaction ends, and all streams wait for
  -- it: one that is left idle after this is ended by the server.
  if current_setting('idle_in_transaction_session_timeout') in ('0', '0ms') then
    perform set_config('idle_in_transaction_session_timeout', '30s', true);
  end if;
  -- One at a time, so that windows are in the order of their numbers.
  perform pg_advisory_xact_lock(hashtextextended('deed.open_window', 0));
  select c.system_identifier into v_system from pg_control_system() c;
  if pg_current_xact_id_if_assigned() is not null
    and v_system <> (select w.system_identifier from deed.windows w order by w.n desc limit 1)
  then
    -- What is published meanwhile could not be told from what came with the dump.
    raise exception 'open_window: this transaction has written already, and the cluster is another than the last window''s'
      using errcode = 'DDARG', hint = 'Begin with it, in a transaction of its own.';
  end if;
  v_first := pg_sequence_last_value('deed.log_seq');
  v_base := v_first;
  if pg_current_xact_id_if_assigned() is not null then
    select coalesce(max(w.base), 0) into v_base
    from (
      select w.base from deed.windows w
      where w.system_identifier = v_system and w.h <= pg_current_xact_id()
      order by w.n desc limit 1
    ) w;
  end if;
  v_h := pg_current_xact_id();
  select pg_current_snapshot() into v_cur;
  v_upper := pg_sequence_last_value('deed.log_seq');
  select w.n, w.upper, w.system_identifier, w.restored_id, w.restored_h into v_prev from deed.windows w order by w.n desc limit 1;
  if v_first is null or v_upper is null or v_upper < v_first or v_first < v_prev.upper then
    raise exception 'open_window: the sequence deed.log_seq went back (base %, upper %, last window''s upper %)',
      v_first, v_upper, v_prev.upper
      using errcode = 'DDCON', hint = 'Set it above the highest id of deed.log before anything is published.';
  end if;
  v_moved := v_prev.system_identifier <> v_system;
  insert into deed.windows (base, h, cur, upper, system_identifier, restored_id, restored_h)
  values (
    v_base, v_h, v_cur, v_upper, v_system,
    case when v_moved then v_first else v_prev.restored_id end,
    case when v_moved then v_h else v_prev.restored_h end
  )
  returning n into v_n;
  return v_n;
end
$$;
