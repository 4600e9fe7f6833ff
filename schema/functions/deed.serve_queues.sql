-- deed.serve_queues: say which queues of steps a worker claims from, for p_for from now on: so it is seen what nobody
-- serves (deed.unserved_queues). For workers, with the renewal of their leases. p_instance tells two of one name
-- apart; an empty array of queues says that it serves nothing any more. Raises DDARG.
create or replace function deed.serve_queues(
  p_worker   text,
  p_instance uuid,
  p_queues   text[],
  p_for      interval default interval '30 seconds'
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  if (length(p_worker) between 1 and 200 and cardinality(p_queues) <= 10000 and p_instance is not null) is not true then
    raise exception 'serve_queues: a worker has a name of 1 to 200 characters, an instance, and at most 10000 queues' using errcode = 'DDARG';
  elsif (p_for between interval '1 second' and interval '24 hours') is not true then
    raise exception 'serve_queues: the time must be from 1 second to 24 hours, got %', coalesce(p_for::text, 'null') using errcode = 'DDARG';
  end if;
  if p_queues = '{}' then
    delete from deed.run_workers w where w.instance = p_instance;
    return;
  end if;
  insert into deed.run_workers (instance, started_at, seen_until, worker, queues)
  values (p_instance, v_now, v_now + p_for, p_worker, p_queues)
  on conflict (instance) do update set seen_until = excluded.seen_until, queues = excluded.queues;
  delete from deed.run_workers w
  where w.ctid = any (array(select o.ctid from deed.run_workers o where o.seen_until < v_now - interval '1 day' limit 100 for update skip locked));
end
$$;
