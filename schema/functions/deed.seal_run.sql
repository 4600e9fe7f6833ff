-- deed.seal_run: write on a run of a campaign what is known of it, p_sealed; from then on its
-- deliveries go (deed.purge_run), looks at it go by that, and it is not retried. The caller has it by
-- deed.run_to_seal. The audit log has what was written, too, so that its seals hold it. Raises DDCON for
-- one that has not ended, is sealed, or was retried meanwhile.
create or replace function deed.seal_run(
  p_run    uuid,
  p_sealed jsonb,
  p_actor  text
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  with written as (
    update deed.campaign_runs r
    set sealed = p_sealed, sealed_at = clock_timestamp()
    where r.id = p_run and r.finished_at is not null and r.sealed_at is null and not exists (select from deed.campaign_runs o where o.retry_of = r.id and o.sealed_at is null)
    returning r.id, r.tenant_id, r.members, r.status
  )
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, affected, details)
  select w.tenant_id, w.id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'seal', 'run', w.id::text, w.members, p_sealed
  from written w;
  if not found then
    raise exception 'seal_run: run % has not ended, is sealed, or was retried', p_run using errcode = 'DDCON';
  end if;
end
$$;
