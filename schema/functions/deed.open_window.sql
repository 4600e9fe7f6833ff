-- deed.open_window: mark a point in the log and return its number.
--
-- In this order, each a statement of its own: base, a transaction id of our
-- own, the snapshot, upper. Whoever takes a transaction id from h on gets
-- numbers above base; whoever is visible in cur has numbers up to upper. Where
-- the caller's transaction already has an id, base is that of the last window
-- that was opened before it. restored_id is how far the log had come when this
-- cluster opened its first window after another one's (a restore, logical
-- replication).
--
-- p_way says what of windows that others are just opening:
--   wait  windows are in the order of their numbers, hence one after the other
--   try   null is returned at once
--   mark  nothing: a mark (its number is below 0) is where something begins; it
--         is not in their order, and nobody waits for its transaction
-- Raises DDCON when the sequence went back, and DDARG for the first window or
-- mark of a cluster in a transaction that has an id already.
create or replace function deed.open_window(
  p_way text default 'wait'
) returns bigint
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
  if p_way = 'wait' then
    lock table deed.window_lock in share update exclusive mode;
  elsif p_way = 'try' then
    begin
      lock table deed.window_lock in share update exclusive mode nowait;
    exception when lock_not_available then
      return null;
    end;
  elsif p_way is distinct from 'mark' then
    raise exception 'open_window: way % must be wait, try or mark', coalesce(quote_literal(p_way), 'null') using errcode = 'DDARG';
  end if;
  select c.system_identifier into v_system from pg_control_system() c;
  -- Before the sequence is asked: what a mark looks at is not held still.
  select w.n, w.upper, w.system_identifier, w.restored_id, w.restored_h into v_prev from deed.windows w order by w.n desc limit 1;
  v_moved := v_prev.system_identifier <> v_system;
  if pg_current_xact_id_if_assigned() is not null and v_moved then
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
  if pg_visible_in_snapshot(v_h, v_cur) then
    v_cur := format('%s:%s:%s', pg_snapshot_xmin(v_cur), pg_snapshot_xmax(v_cur), (
      select string_agg(x::text, ',' order by x::text::bigint)
      from (select pg_snapshot_xip(v_cur) union all select v_h) r(x)
    ))::pg_snapshot;
  end if;
  v_upper := pg_sequence_last_value('deed.log_seq');
  if v_first is null or v_upper is null or v_upper < v_first or v_first < v_prev.upper then
    raise exception 'open_window: the sequence deed.log_seq went back (base %, upper %, last window''s upper %)',
      v_first, v_upper, v_prev.upper
      using errcode = 'DDCON', hint = 'Set it above the highest id of deed.log before anything is published.';
  end if;
  if p_way = 'mark' then
    v_n := -nextval('deed.mark_seq');
  else
    -- The timeline in front: see deed.claim_number. Numbers never go back.
    v_n := greatest((deed.timeline() << 40) + nextval(pg_get_serial_sequence('deed.windows', 'n')), v_prev.n + 1);
  end if;
  insert into deed.windows (n, base, h, cur, upper, system_identifier, restored_id, restored_h) overriding system value
  values (
    v_n, v_base, v_h, v_cur, v_upper, v_system,
    case when v_moved then v_first else v_prev.restored_id end,
    case when v_moved then v_h else v_prev.restored_h end
  );
  return v_n;
end
$$;
