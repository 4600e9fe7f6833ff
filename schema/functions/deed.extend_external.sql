-- deed.extend_external: renew the lease of a step of kind external that deed.claim_external has given out. Returns until when
-- it is the caller's, which is not past its deadline; null: it is not any more, and what becomes of it is not recorded. That the step has begun is
-- told in the run's log (StepStarted), and that its worker serves the queue (deed.serve_external). Raises DDARG.
create or replace function deed.extend_external(
  p_run   uuid,
  p_step  text,
  p_claim bigint,
  p_lease interval default interval '30 seconds'
) returns timestamptz
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_step  record;
  v_row   tid;
  v_until timestamptz;
begin
  if (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'extend_external: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  end if;
  -- Before anything is locked.
  select s.queue, s.claimed_by into v_step
  from deed.run_steps s
  where s.run_id = p_run and s.step_id = p_step and s.claim = p_claim and s.offer is not null and s.lease_until > v_now;
  if found then
    perform deed.serve_external(v_step.queue, v_step.claimed_by);
  end if;
  -- The run first, as whoever ends a step has it. Where somebody keeps it locked it is told later, with the end.
  perform from deed.runs r where r.run_id = p_run for no key update skip locked;
  if found then
    select s.place, s.begun_at into v_step
    from deed.run_steps s
    where s.run_id = p_run and s.step_id = p_step and s.claim = p_claim and s.offer is not null and s.lease_until > v_now;
    if found then
      perform deed.announce_steps(array[p_run], array[v_step.place], array[p_claim], array[v_step.begun_at]);
    end if;
  end if;
  -- In two statements: a row that somebody has changed since the first one began, that one locks and would not update.
  select o.ctid into v_row
  from deed.run_steps o
  where o.run_id = p_run and o.step_id = p_step and o.claim = p_claim and o.offer is not null and not o.ready and o.lease_until > v_now
  for update skip locked;
  if found then
    update deed.run_steps s
    set lease_until = least(v_now + p_lease, s.deadline), process_after = least(v_now + p_lease, s.deadline)
    where s.ctid = v_row
    returning s.lease_until into v_until;
  else
    -- One that somebody has locked is the caller's while its lease lasts.
    select s.lease_until into v_until
    from deed.run_steps s
    where s.run_id = p_run and s.step_id = p_step and s.claim = p_claim and s.offer is not null and not s.ready and s.lease_until > v_now;
  end if;
  return v_until;
end
$$;
