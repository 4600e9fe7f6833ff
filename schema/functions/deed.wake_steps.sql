-- deed.wake_steps: make due the steps that wait for a delivery (kind deliver, wait: sent) which has ended by now, or is
-- there no more. For workers, now and then: nothing that ends a delivery looks at a run.
--
-- It looks at p_limit steps that wait, in the order of their runs, from behind p_run and p_place on, and
-- locks none but those that it makes due; one that somebody has locked is left for the next look. next_run and next_place are where the next look
-- goes on, and null after the last one. The delivery is the one with the key of the step's effects,
-- idempotency_key(run, step, key_n). Raises DDARG.
create or replace function deed.wake_steps(
  p_run      uuid default null,
  p_place    int default null,
  p_limit    int default 1000,
  out woken      int,
  out next_run   uuid,
  out next_place int
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_runs   uuid[];
  v_places int[];
begin
  if (p_limit between 1 and 10000) is not true then
    raise exception 'wake_steps: limit must be from 1 to 10000, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  end if;
  with waiting as materialized (
    select s.run_id, s.place, s.tenant_id, deed.idempotency_key(s.run_id::text, s.step_id, s.key_n::text) as key
    from deed.run_steps s
    where s.parked and not s.ready and s.process_after = 'infinity'
      and (s.run_id, s.place) > (coalesce(p_run, '00000000-0000-0000-0000-000000000000'), coalesce(p_place, -1))
    order by s.run_id, s.place
    limit p_limit
  )
  select array_agg(w.run_id order by w.run_id, w.place) filter (where c.status is null or c.status not in ('queued', 'sending')),
    array_agg(w.place order by w.run_id, w.place) filter (where c.status is null or c.status not in ('queued', 'sending')),
    (array_agg(w.run_id order by w.run_id desc, w.place desc))[1], (array_agg(w.place order by w.run_id desc, w.place desc))[1], count(*)
  into v_runs, v_places, next_run, next_place, woken
  from waiting w
  left join lateral (
    select o.status from deed.channel_outbox o
    where o.tenant_id = w.tenant_id and o.workspace_id = '00000000-0000-0000-0000-000000000000' and o.idempotency_key = w.key
  ) c on true;
  if woken < p_limit then
    next_run := null;
    next_place := null;
  end if;
  update deed.run_steps s
  set ready = true, process_after = v_now
  where s.ctid = any (array(
    select q.ctid
    from generate_series(1, cardinality(v_runs)) n
    cross join lateral (
      select o.ctid from deed.run_steps o
      where o.run_id = v_runs[n] and o.place = v_places[n] and o.parked and not o.ready and o.process_after = 'infinity'
      for update skip locked
    ) q
  ));
  get diagnostics woken = row_count;
end
$$;
