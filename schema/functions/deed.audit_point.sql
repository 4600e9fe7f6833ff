-- deed.audit_point: up to which number the audit log may be sealed once who is writing to it
-- now has ended (deed.audit_passed), and who that is.
--
-- Whoever has taken a number has held the lock of writers on the table since before that, and
-- keeps it to the end of its transaction, prepared ones too: it is asked for after the number was
-- read. Not by snapshots: a row has its number before its transaction has an id.
create or replace function deed.audit_point(
  out upto    bigint,
  out writers text[]
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  upto := coalesce(pg_sequence_last_value('deed.audit_log_n_seq'), 0);
  writers := array(
    select distinct l.virtualtransaction from pg_locks l
    where l.relation = 'deed.audit_log'::regclass and l.mode = 'RowExclusiveLock' and l.granted and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
  );
end
$$;
