-- deed.write_winner: write which variant the rest of a run's audience gets, once, and have their
-- jobs be due. The caller has the run's row, and has seen that there is none yet.
--
-- p_due is when it could be decided: the rest's own time begins then, and they expire as long
-- after it as the others after theirs. A relay's decision that comes late, such as of a copy
-- that is restored, makes nobody's time longer. Of a run that is paused it counts up to the pause: what follows deed.resume_run adds.
create or replace function deed.write_winner(
  p_run     uuid,
  p_variant text,
  p_due     timestamptz,
  p_actor   text,
  p_reason  text,
  p_details jsonb
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_run deed.campaign_runs;
begin
  update deed.campaign_runs r
  set winner = p_variant, winner_at = v_now, decide_at = null,
    expires_at = case when r.finished_at is null then greatest(r.expires_at, coalesce(r.last_due, r.scheduled_for) + deed.counted_time(p_run, r.scheduled_for, least(p_due, case when r.paused_at is not null then greatest(r.paused_at, r.scheduled_for) end))
      + coalesce((r.options ->> 'expires_after')::interval, interval '24 hours')) else r.expires_at end
  where r.id = p_run
  returning r.* into strict v_run;
  update deed.job_queue j
  set process_after = greatest(v_now, v_run.scheduled_for)
  where j.run_id = p_run and j.part = 'rest' and j.status = 'queued' and j.process_after = 'infinity';
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, reason, details)
  values (v_run.tenant_id, p_run, p_actor, 'decide', 'run', p_run::text, left(p_reason, 2000), jsonb_build_object('winner', p_variant) || coalesce(p_details, '{}'));
end
$$;
