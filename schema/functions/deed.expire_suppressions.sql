-- deed.expire_suppressions: take away suppressions that have ended, at most p_limit;
-- returns how many. They have held for nobody since. One audit row a tenant.
create or replace function deed.expire_suppressions(
  p_limit  int,
  p_worker text
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_count bigint;
begin
  with ended as (
    select s.ctid as place
    from deed.suppressions s
    where s.expires_at is not null and s.expires_at <= clock_timestamp()
    order by s.expires_at
    limit p_limit
    for update skip locked
  ),
  gone as (
    delete from deed.suppressions s
    where s.ctid = any (array(select e.place from ended e))
    returning s.tenant_id
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, reason, affected)
    select g.tenant_id, p_worker, 'expire', 'suppression', 'it was to end by now', count(*)
    from gone g
    group by g.tenant_id
  )
  select count(*) into v_count from gone;
  return v_count;
end
$$;
