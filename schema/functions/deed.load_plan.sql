-- deed.load_plan: a plan of a tenant, checked: body is null where its bytes are not those
-- that were stored, or not those that p_sha256 says, which a run has noted when it began;
-- expected and actual are the two hashes then, and both are in the audit log as
-- PLAN_INTEGRITY_VALIDATION_FAILED. No row: there is no such plan.
--
-- p_tenant null: the one that the transaction has set. Raises DDTEN, DDNFD for an unknown
-- tenant, DDCON for a removed one.
create or replace function deed.load_plan(
  p_plan_id      text,
  p_plan_version text,
  p_sha256       bytea default null,
  p_tenant       uuid default null
) returns table (body bytea, expected bytea, actual bytea, created_at timestamptz, created_by text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_tenant uuid := deed.tenant_of_call('load_plan', p_tenant);
begin
  for body, expected, actual, created_at, created_by in
    select p.body, coalesce(p_sha256, p.sha256), sha256(p.body), p.created_at, p.created_by
    from deed.plans p
    where p.tenant_id = v_tenant and p.plan_id = p_plan_id and p.plan_version = p_plan_version
  loop
    if actual <> expected then
      body := null;
      insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
      values (v_tenant, session_user, 'refuse', 'plan', p_plan_id || '@' || p_plan_version, 'PLAN_INTEGRITY_VALIDATION_FAILED',
        jsonb_build_object('expected', encode(expected, 'hex'), 'found', encode(actual, 'hex')));
    end if;
    return next;
  end loop;
end
$$;
