-- deed.pause_failing: pause the runs of campaigns of which more has failed, or been complained
-- about, than their option pause_on allows, as deed.pause_run does; returns them, and why.
--
-- Of what has ended by a call since the run was resumed last, and only once that is at least from
-- (default: 200), more than the share failed or was complained about. It is counted again each
-- time (deed.run_ends), and nothing that sends writes to a run. One that somebody keeps locked is
-- looked at the next time.
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
  v_now record;
begin
  for v_run in
    select r.id, r.tenant_id, r.options -> 'pause_on' as bounds, coalesce(r.pause_base, '{}') as base
    from deed.campaign_runs r
    where r.finished_at is null and r.status = 'running' and r.paused_at is null and r.cancelled_at is null and r.options ? 'pause_on'
      and not exists (select from deed.tenant_removals t where t.tenant_id = r.tenant_id)
    order by r.id
  loop
    select e.ended - coalesce((v_run.base ->> 'ended')::bigint, 0) as ended, e.failed - coalesce((v_run.base ->> 'failed')::bigint, 0) as failed,
      e.complained - coalesce((v_run.base ->> 'complained')::bigint, 0) as complained
    into v_now
    from deed.run_ends(v_run.id, false) e;
    continue when v_now.ended < coalesce((v_run.bounds ->> 'from')::bigint, 200);
    why := case
      when v_now.failed * 100.0 > rtrim(v_run.bounds ->> 'failed', '%')::numeric * v_now.ended
        then format('failed: %s of %s that have ended, over %s', v_now.failed, v_now.ended, v_run.bounds ->> 'failed')
      when v_now.complained * 100.0 > rtrim(v_run.bounds ->> 'complained', '%')::numeric * v_now.ended
        then format('complained: %s of %s that have ended, over %s', v_now.complained, v_now.ended, v_run.bounds ->> 'complained') end;
    continue when why is null;
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
