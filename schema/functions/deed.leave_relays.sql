-- deed.leave_relays: say that a process no longer reads streams, so that the
-- others take its share at once. Forgets those that died, too.
--
-- p_release gives back what lanes it still has: none of them may be read any
-- more. It may have taken some after it had been told to stop.
create or replace function deed.leave_relays(
  p_worker  uuid,
  p_release boolean default false
) returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
  delete from deed.relays r
  where r.worker = p_worker or r.seen_until < clock_timestamp() - interval '1 day';
  update deed.lanes l set worker = null, lease_until = null
  where p_release and l.worker = p_worker;
$$;
