-- deed.add_jobs: make the jobs of a run that its caller has just made, all queued, and say so
-- in the audit log (C1), and begin its rate, if it has one. It touches no member.
create or replace function deed.add_jobs(
  p_run   uuid,
  p_actor text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run deed.campaign_runs;
begin
  select r.* into strict v_run from deed.campaign_runs r where r.id = p_run;
  insert into deed.job_queue (id, run_id, tenant_id, workspace_id, job_type, process_after, from_n, upto_n, created_at)
  select deed.new_id(), p_run, v_run.tenant_id, v_run.workspace_id,
    case v_run.channel when 'email' then 'email_send_batch' when 'voice' then 'voice_call_batch' when 'social' then 'social_post_batch' when 'sms' then 'sms_send_batch' else 'chat_send_batch' end,
    v_run.scheduled_for, f, least(f + 999, v_run.members), v_run.created_at
  from generate_series(1, v_run.members, 1000) f;
  insert into deed.rate_limits (provider, lane, rate, burst, tokens, at, run_id, ramp)
  select v_run.provider, p_run::text, p.first, greatest(1, p.first), 1, v_run.created_at, p_run, p.ramp
  from (select coalesce(o.ramp[2], o.rate) as first, o.ramp from deed.pace_of(v_run.options) o) p
  where p.first is not null;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, to_status, details)
  values (v_run.tenant_id, p_run, p_actor, 'deploy', 'run', p_run::text, 'queued', jsonb_strip_nulls(jsonb_build_object('campaign', v_run.campaign_id,
    'audience', v_run.audience_id, 'members', v_run.members, 'retry_of', v_run.retry_of)));
end
$$;
