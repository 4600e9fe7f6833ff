-- deed.add_jobs: make the jobs of a run that its caller has just made, all queued, and say so
-- in the audit log (C1), and begin its rate, if it has one. It touches no member. One with a test
-- whose winner is open has two jobs for a range of which some are in the test's cells and some are
-- not; it reads its audience to know that. Those of the rest are due when it is decided.
create or replace function deed.add_jobs(
  p_run   uuid,
  p_actor text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run   deed.campaign_runs;
  v_cells record;
begin
  select r.* into strict v_run from deed.campaign_runs r where r.id = p_run;
  select c.names, c.share, c.salt into v_cells from deed.cells_of(v_run.options, v_run.request_id) c;
  insert into deed.job_queue (id, run_id, tenant_id, workspace_id, job_type, process_after, from_n, upto_n, part, members, created_at)
  select deed.new_id(), p_run, v_run.tenant_id, v_run.workspace_id,
    case v_run.channel when 'email' then 'email_send_batch' when 'voice' then 'voice_call_batch' when 'social' then 'social_post_batch' when 'sms' then 'sms_send_batch' else 'chat_send_batch' end,
    case when j.part = 'rest' then 'infinity' else v_run.scheduled_for end, j.f, least(j.f + 999, v_run.members), j.part, j.n, v_run.created_at
  from (
    select f, null as part, null::int as n from generate_series(1, v_run.members, 1000) f where not v_run.options ? 'test' or v_run.winner is not null
    union all
    select m.f, m.part, count(*)
    from (
      select (o.n - 1) / 1000 * 1000 + 1 as f, case when deed.variant_of(v_cells.names, v_cells.share, v_cells.salt, o.contact_id) is null then 'rest' else 'test' end as part
      from deed.audience_members o
      where o.audience_id = v_run.audience_id and v_run.options ? 'test' and v_run.winner is null
    ) m
    group by m.f, m.part
    order by 1, 2 desc
  ) j;
  if v_run.options ? 'test' and v_run.winner is null and v_run.options #>> '{test,by}' <> 'person' then
    update deed.campaign_runs r set decide_at = r.scheduled_for + (r.options #>> '{test,wait}')::interval where r.id = p_run;
  end if;
  insert into deed.rate_limits (provider, lane, rate, burst, tokens, at, run_id, ramp)
  select v_run.provider, p_run::text, p.first, greatest(1, p.first), 1, v_run.created_at, p_run, p.ramp
  from (select coalesce(o.ramp[2], o.rate) as first, o.ramp from deed.pace_of(v_run.options) o) p
  where p.first is not null;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, to_status, details)
  values (v_run.tenant_id, p_run, p_actor, 'deploy', 'run', p_run::text, 'queued', jsonb_strip_nulls(jsonb_build_object('campaign', v_run.campaign_id,
    'audience', v_run.audience_id, 'members', v_run.members, 'retry_of', v_run.retry_of)));
end
$$;
