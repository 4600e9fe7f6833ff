-- deed.reschedule: move the time from which on a waiting message is due.
--
-- p_at null: it is due, at its place by age. A time that lies more than an hour
-- back counts as now. For one subscription, or if p_subscription is null for all,
-- of those for which nobody has it in hand, and which neither are dead nor wait
-- behind another message of its key. Returns for how many; the audit log says
-- who moved what, and why. Raises DDNFD if nobody waits for such a message,
-- DDARG for a time after the year 9999.
create or replace function deed.reschedule(
  p_id           bigint,
  p_at           timestamptz,
  p_subscription text default null,
  p_reason       text default null,
  p_by           text default null
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_at    timestamptz := case when p_at < v_now - interval '1 hour' then v_now else p_at end;
  v_rows  tid[];
  v_count int;
begin
  if length(p_by) not between 1 and 200 or length(p_reason) > 2000 then
    raise exception 'reschedule: who asks is a name of 1 to 200 characters, a reason has up to 2000' using errcode = 'DDARG';
  end if;
  if v_at >= '10000-01-01 00:00:00+00' then
    raise exception 'reschedule: the time must be before the year 10000' using errcode = 'DDARG';
  end if;
  -- Locked in a statement of its own: the next one sees what others have made of them meanwhile.
  v_rows := array(
    select p.ctid
    from deed.subscriptions s
    join deed.pending p on p.subscription = s.id and p.id = p_id
    where (p_subscription is null or s.name = p_subscription)
      and p.dead_at is null and not p.parked and (p.lease_until is null or p.lease_until <= v_now)
    for update of p
  );
  with chosen as (
    select p.ctid as place, s.name, p.process_after
    from deed.pending p
    join deed.subscriptions s on s.id = p.subscription
    where p.ctid = any (v_rows)
  ),
  moved as (
    update deed.pending p set process_after = v_at
    from chosen c
    where p.ctid = c.place
    returning p.tenant_id, p.slot, c.name, c.process_after
  ),
  told as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
    select m.tenant_id, coalesce(p_by, session_user), 'reschedule', 'message', p_id::text, p_reason,
      jsonb_build_object('topic', l.topic, 'subscription', m.name, 'from', m.process_after, 'to', v_at)
    from moved m
    left join (
      select slot, id, topic from deed.log
      union all
      select slot, id, topic from deed.kept
    ) l on l.slot = m.slot and l.id = p_id
  )
  select count(*) into v_count from moved;
  if v_count = 0 and not exists (
    select from deed.subscriptions s
    join deed.pending p on p.subscription = s.id and p.id = p_id
    where p_subscription is null or s.name = p_subscription
  ) then
    raise exception 'reschedule: nobody waits for a message %', coalesce(p_id::text, 'null') using errcode = 'DDNFD';
  end if;
  return v_count;
end
$$;
