-- deed.resume_run: let a campaign's run that is paused go on; the time in which it was paused
-- does not count for when it expires, and what had failed by now not for when it pauses itself
-- again (deed.pause_failing): that is counted before the run is locked, which takes as long as the run is large, and under
-- the lock what has ended since (deed.run_ends_since), by its time, and what somebody had in hand then: what ends it may have
-- looked at the time long before it commits. Again is harmless. Raises DDTEN, DDNFD, DDCON for a run
-- that has ended or is cancelled.
create or replace function deed.resume_run(
  p_run    uuid,
  p_reason text default null,
  p_tenant uuid default null,
  p_actor  text default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_tenant uuid := deed.tenant_of_call('resume_run', p_tenant);
  v_run    deed.campaign_runs;
  v_from   timestamptz := clock_timestamp() - interval '10 seconds'; -- what ended before that, and is not committed, is in hand
  v_before record;
  v_base   jsonb;
begin
  select e.ended - s.ended as ended, e.failed - s.failed as failed, array(
      select c.id from deed.channel_outbox c
      where c.run_id = r.id and c.finished_at is null and (c.claim is not null or c.xmax <> 0) -- it is claimed, or somebody is writing it
    ) as in_hand into v_before
  from deed.campaign_runs r
  cross join lateral deed.run_ends(r.id) e
  cross join lateral deed.run_ends_since(r.id, v_from) s
  where r.id = p_run and r.tenant_id = v_tenant and r.options ? 'pause_on' and r.paused_at is not null and r.finished_at is null and r.cancelled_at is null;
  select r.* into v_run from deed.campaign_runs r where r.id = p_run and r.tenant_id = v_tenant for no key update;
  if not found then
    raise exception 'resume_run: there is no run %', p_run using errcode = 'DDNFD';
  elsif v_run.finished_at is not null or v_run.cancelled_at is not null then
    raise exception 'resume_run: run % is %', p_run, case when v_run.finished_at is null then 'cancelled' else v_run.status end using errcode = 'DDCON';
  elsif v_run.paused_at is null or v_run.options ? 'pause_on' and v_before.ended is null then
    return; -- the latter was paused when it had been looked at: this came before that
  end if;
  if v_run.options ? 'pause_on' then
    select jsonb_build_object('ended', v_before.ended + s.ended + h.ended, 'failed', v_before.failed + s.failed + h.failed, 'complained', f.complained) into v_base
    from deed.run_ends_since(p_run, v_from) s
    cross join (
      select count(*) filter (where c.status <> 'skipped') as ended, count(*) filter (where c.status in ('failed', 'dead')) as failed
      from deed.channel_outbox c
      where c.id = any (v_before.in_hand) and c.finished_at < v_from
    ) h
    cross join (select count(*) as complained from deed.delivery_feedback d where d.run_id = p_run and d.complained_at is not null) f;
  end if;
  update deed.campaign_runs r
  set paused_at = null, paused_why = null, pause_base = v_base, expires_at = r.expires_at + deed.counted_time(p_run, greatest(r.paused_at, r.scheduled_for), clock_timestamp())
  where r.id = p_run;
  delete from deed.delivery_holds h where h.run_id = p_run;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, reason)
  values (v_tenant, p_run, coalesce(nullif(left(p_actor, 200), ''), session_user), 'resume', 'run', p_run::text, left(p_reason, 2000));
end
$$;
