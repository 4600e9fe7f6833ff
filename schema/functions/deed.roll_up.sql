-- deed.roll_up: end the jobs of campaigns of which every delivery has ended, up to p_limit
-- that are due for a look, and the runs whose last job that was; the one place where a job's
-- status is computed (C3).
--
-- Nothing that sends writes to a job: what became of it is counted from its deliveries
-- (deed.count_job), when none is open any more, and now and then before that, for looks at the run
-- and deed.pause_failing: so seldom that a million members under way cost half a hundredth of a core, and two where the run pauses itself by them, and at its first look unless its expansion has said it (deed.expand_job). completed: all went out or were rightly skipped, or some did
-- and others failed; else dead if one is dead, and failed if none is. What was cancelled or
-- has expired was not rightly skipped. A job with something open is looked at again after a
-- quarter of its age, at least 0.3 s and at most a minute; so is one whose run somebody keeps locked. Jobs of a run end
-- about in turn: the first three that are open count their age from when the one before them ended, and are looked at when that
-- does, so that a run's end is seen when it comes, and not a quarter of its age later. All others are looked at when they are counted,
-- no sooner: most looks were at jobs of large runs whose turn was far. Returns how many were looked at
-- and how many ended, and in how many seconds the next look is due; null, there is none.
--
-- Each look at a job leaves an entry in the index that looks go by, which an old snapshot keeps. So one from the beginning that has
-- stepped over many says where the next ones may begin (p_from), and for how many seconds (rest): twenty times what that took, at least
-- one. Nothing that had been committed was due before mark; what comes to stand there later, such as a job whose expansion took
-- longer than five seconds, is found after that. mark null: there is next to nothing to step over, or this did not begin at the beginning.
create or replace function deed.roll_up(
  p_limit    int,
  p_worker   text,
  p_from     timestamptz default '-infinity',
  out looked int,
  out ended  int,
  out wait   double precision,
  out mark   timestamptz,
  out rest   double precision
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
  v_now   timestamptz := clock_timestamp();
  v_job   record;
  v_sums  record;
  v_to    text;
  v_open  bool;
  v_apart interval; -- between two counts of an open one
  v_due   bool; -- it is counted though it is open
  v_first bool; -- it is one of the first that are open
  v_turn  timestamptz; -- when the one before it ended, if it is
  v_next  timestamptz;
  v_runs  uuid[] := '{}';
  v_begun timestamptz;
  v_least timestamptz; -- when the first one is due for a look
begin
  looked := 0;
  ended := 0;
  for v_job in
    select j.id, j.run_id, j.tenant_id, j.from_n, j.expanded_at, j.counted_at, r.members, r.pauses
    from deed.job_queue j
    cross join lateral (select o.members, o.options ? 'pause_on' as pauses from deed.campaign_runs o where o.id = j.run_id) r
    where j.status = 'locked' and j.expanded_at is not null and j.process_after >= p_from and j.process_after <= v_now
    order by j.process_after
    limit p_limit
    for update of j skip locked
  loop
    looked := looked + 1;
    -- Only the first ones are looked at: of a job that has ended all would be, to find none that is open, and then once more to count them.
    v_open := exists (
      select
      from (select c.finished_at from deed.channel_outbox c where c.run_id = v_job.run_id and c.job_id = v_job.id limit 50) f
      where f.finished_at is null
    );
    v_apart := case when v_job.pauses then interval '30 microseconds' else interval '120 microseconds' end * v_job.members;
    v_due := not v_open or coalesce(v_now - v_job.counted_at >= v_apart, true);
    if v_due then
      select s.* into v_sums from deed.count_job(v_job.run_id, v_job.id) s;
      v_open := v_sums.queued + v_sums.sending > 0;
    end if;
    if not v_open then -- the run may end with it
      perform from deed.campaign_runs r where r.id = v_job.run_id for no key update skip locked;
      v_open := not found;
    end if;
    if v_open then
      v_turn := null;
      v_first := (
        select count(*) < 3
        from (
          select
          from (
            select o.finished_at
            from deed.job_queue o
            where o.run_id = v_job.run_id and o.from_n < v_job.from_n
            order by o.from_n desc
            limit 20 -- what ended before these is not gone through
          ) n
          where n.finished_at is null
          limit 3
        ) b
      );
      if v_first then
        select o.finished_at into v_turn
        from deed.job_queue o
        where o.run_id = v_job.run_id and o.from_n < v_job.from_n and o.finished_at is not null
        order by o.from_n desc
        limit 1;
      end if;
      v_next := v_now + greatest(interval '300 milliseconds',
        least(interval '1 minute', greatest((v_now - greatest(v_job.expanded_at, v_turn)) / 4, case when not v_first then v_apart end)));
      if v_due then
        update deed.job_queue j
        set process_after = v_next, counted_at = v_now, sent = v_sums.sent, skipped = v_sums.skipped, missed = v_sums.missed, failed = v_sums.failed, dead = v_sums.dead,
          queued = v_sums.queued, sending = v_sums.sending, in_doubt = v_sums.in_doubt, held = v_sums.held, reasons = v_sums.reasons
        where j.id = v_job.id;
      else
        update deed.job_queue j set process_after = v_next where j.id = v_job.id;
      end if;
      continue;
    end if;
    v_to := case
      when v_sums.sent > 0 or v_sums.failed + v_sums.dead + v_sums.missed = 0 then 'completed'
      when v_sums.dead > 0 then 'dead'
      else 'failed' end;
    update deed.job_queue j
    set status = case v_to when 'dead' then 'failed' else v_to end, finished_at = v_now, sent = v_sums.sent, skipped = v_sums.skipped, missed = v_sums.missed,
      failed = v_sums.failed, dead = v_sums.dead, counted_at = v_now, queued = v_sums.queued, sending = v_sums.sending, in_doubt = v_sums.in_doubt, held = v_sums.held,
      reasons = v_sums.reasons
    where j.id = v_job.id;
    if v_to = 'dead' then
      update deed.job_queue j set status = 'dead' where j.id = v_job.id;
    end if;
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, details)
    select v_job.tenant_id, v_job.run_id, p_worker, 'end', 'job', v_job.id::text, t.was, t.becomes,
      case when t.was = 'locked' then jsonb_build_object('sent', v_sums.sent, 'skipped', v_sums.skipped, 'missed', v_sums.missed, 'failed', v_sums.failed, 'dead', v_sums.dead) end
    from (values ('locked', case v_to when 'dead' then 'failed' else v_to end), ('failed', case v_to when 'dead' then 'dead' end)) t(was, becomes)
    where t.becomes is not null;
    update deed.job_queue j
    set process_after = v_now
    where j.id in (
      -- What another has in hand is not waited for.
      select o.id
      from deed.job_queue o
      where o.process_after > v_now + interval '300 milliseconds' and o.id = any (array(
        select f.id
        from deed.job_queue f
        where f.run_id = v_job.run_id and f.from_n > v_job.from_n and f.status = 'locked' and f.expanded_at is not null
        order by f.from_n
        limit 3
      ))
      for update skip locked
    );
    ended := ended + 1;
    -- Who ends one meanwhile without the run's lock (deed.fail_job) asks for the run's end after it.
    if (select o.finished_at is not null from deed.job_queue o where o.run_id = v_job.run_id order by o.from_n desc limit 1) then
      v_runs := v_runs || v_job.run_id;
    end if;
  end loop;
  if v_runs <> '{}' then
    perform deed.end_runs(v_runs, p_worker);
  end if;
  v_begun := clock_timestamp();
  select j.process_after into v_least
  from deed.job_queue j
  where j.status = 'locked' and j.expanded_at is not null and j.process_after >= p_from
  order by j.process_after
  limit 1;
  wait := extract(epoch from v_least - clock_timestamp());
  if p_from = '-infinity' and clock_timestamp() - v_begun > interval '200 microseconds' then
    mark := least(v_least, v_now - interval '5 seconds');
    rest := greatest(1, 20 * extract(epoch from clock_timestamp() - v_begun));
  end if;
end
$$;
