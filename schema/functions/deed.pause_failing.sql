-- deed.pause_failing: pause the runs of campaigns of which more has failed, or been complained
-- about, than their option pause_on allows, as deed.pause_run does; returns them, and why.
--
-- Of what has ended by a call since the run was resumed last, and only once that is at least from
-- (default: 200), more than the share failed or was complained about. It is counted again each
-- time, by what stands on its jobs, of all runs in one statement, and nothing that sends writes to a run. Where that says so the run's deliveries
-- are counted (deed.run_ends), before any run is locked: some of what counts no more since it was resumed may not stand on the jobs yet. One that
-- somebody keeps locked is looked at the next time.
create or replace function deed.pause_failing(p_worker text)
returns table (run_id uuid, tenant_id uuid, why text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_run record;
begin
  for v_run in
    with failing as materialized (
      select o.id, o.tenant_id, o.bounds, o.base, e.ended - coalesce((o.base ->> 'ended')::bigint, 0) as ended, e.failed - coalesce((o.base ->> 'failed')::bigint, 0) as failed,
        e.complained - coalesce((o.base ->> 'complained')::bigint, 0) as complained
      from (
        select r.id, r.tenant_id, r.options -> 'pause_on' as bounds, coalesce(r.pause_base, '{}') as base,
          j.ended - coalesce((r.pause_base ->> 'ended')::bigint, 0) as ended, j.failed - coalesce((r.pause_base ->> 'failed')::bigint, 0) as failed,
          f.complained - coalesce((r.pause_base ->> 'complained')::bigint, 0) as complained
        from deed.campaign_runs r
        cross join lateral (
          select coalesce(sum(q.sent + q.failed + q.dead), 0) as ended, coalesce(sum(q.failed + q.dead), 0) as failed
          from deed.job_queue q
          where q.run_id = r.id
        ) j
        cross join lateral (
          select count(*) as complained
          from deed.delivery_feedback d
          where d.run_id = r.id and d.complained_at is not null and r.options -> 'pause_on' ? 'complained'
        ) f
        where r.finished_at is null and r.status = 'running' and r.paused_at is null and r.cancelled_at is null and r.options ? 'pause_on'
          and not exists (select from deed.tenant_removals t where t.tenant_id = r.tenant_id)
        offset 0 -- each is counted once
      ) o
      cross join lateral deed.run_ends(o.id) e
      where o.ended >= coalesce((o.bounds ->> 'from')::bigint, 200)
        and (o.failed * 100.0 > rtrim(o.bounds ->> 'failed', '%')::numeric * o.ended or o.complained * 100.0 > rtrim(o.bounds ->> 'complained', '%')::numeric * o.ended)
    )
    select f.id, f.tenant_id, f.bounds, f.base, f.ended, f.failed, f.complained
    from failing f
    where f.ended >= coalesce((f.bounds ->> 'from')::bigint, 200)
      and (f.failed * 100.0 > rtrim(f.bounds ->> 'failed', '%')::numeric * f.ended or f.complained * 100.0 > rtrim(f.bounds ->> 'complained', '%')::numeric * f.ended)
    order by f.id -- so that all are counted before the first is locked
  loop
    why := case
      when v_run.failed * 100.0 > rtrim(v_run.bounds ->> 'failed', '%')::numeric * v_run.ended
        then format('failed: %s of %s that have ended, over %s', v_run.failed, v_run.ended, v_run.bounds ->> 'failed')
      else format('complained: %s of %s that have ended, over %s', v_run.complained, v_run.ended, v_run.bounds ->> 'complained') end;
    perform from deed.campaign_runs r
    where r.id = v_run.id and r.finished_at is null and r.paused_at is null and r.cancelled_at is null and coalesce(r.pause_base, '{}') = v_run.base
    for no key update skip locked;
    continue when not found;
    perform deed.pause_run(v_run.id, why, v_run.tenant_id, p_worker);
    update deed.campaign_runs r set paused_why = why where r.id = v_run.id;
    run_id := v_run.id;
    tenant_id := v_run.tenant_id;
    return next;
  end loop;
end
$$;
