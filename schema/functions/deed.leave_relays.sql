-- deed.leave_relays: say that a process no longer reads streams, so that the
-- others take its share at once. Forgets those that died, too.
create or replace function deed.leave_relays(
  p_worker uuid
) returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
  delete from deed.relays r
  where r.worker = p_worker or r.seen_until < clock_timestamp() - interval '1 day'
$$;
