-- deed.unserved_queues: the queues in which steps of runs are due that no worker serves, as far as they say
-- (deed.serve_queues): how many are due and in nobody's hands, up to 10,000 of a queue, and since when
-- the oldest is. A queue go:NAME@VERSION is a version of a Go function, go:HANDLER a handler, external:NAME one of workers in other
-- languages, deed all else.
create or replace function deed.unserved_queues() returns table (queue text, steps bigint, oldest timestamptz)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
  -- One look into the index for each queue; and what is due and was not made ready, since nobody claims at all.
  with recursive around as (
    (select s.queue from deed.run_steps s where s.ready and s.engine = 'local' order by s.queue limit 1)
    union all
    select (select s.queue from deed.run_steps s where s.ready and s.engine = 'local' and s.queue > r.queue order by s.queue limit 1)
    from around r
    where r.queue is not null
  ),
  waiting as materialized (
    select s.queue, s.process_after
    from deed.run_steps s
    where not s.ready and s.process_after <= clock_timestamp() and s.engine = 'local'
    order by s.process_after
    limit 10000
  ),
  due as (
    select r.queue, c.steps, c.oldest
    from around r
    cross join lateral (
      select count(*) as steps, min(o.process_after) as oldest
      from (
        select s.process_after
        from deed.run_steps s
        where s.ready and s.engine = 'local' and s.queue = r.queue and (s.lease_until is null or s.lease_until <= clock_timestamp())
        limit 10000
      ) o
    ) c
    where r.queue is not null and c.steps > 0
    union all
    select w.queue, count(*), min(w.process_after) from waiting w group by w.queue
  )
  select d.queue, sum(d.steps)::bigint, min(d.oldest)
  from due d
  where not exists (select from deed.run_workers w where w.seen_until > clock_timestamp() and d.queue = any (w.queues))
  group by d.queue
$$;
