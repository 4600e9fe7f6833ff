-- deed.audit_passed: whether those whom deed.audit_point named have ended. One that was
-- prepared goes by another name after a restart of the server, so that all such count.
create or replace function deed.audit_passed(
  p_writers text[]
) returns boolean
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
  select not exists (
    select from pg_locks l
    where l.relation = 'deed.audit_log'::regclass and l.mode = 'RowExclusiveLock' and (l.virtualtransaction = any (p_writers) or l.virtualtransaction like '-1/%')
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
  )
$$;
