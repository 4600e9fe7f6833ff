-- deed.check_tenants: raise 40001 if one of the tenants was removed since the caller's
-- snapshot was taken.
--
-- For publishers under REPEATABLE READ or SERIALIZABLE, as deed.check_lists: the
-- insertion of a key looks past the snapshot. What has not been committed is passed by:
-- deed.remove_tenant_step waits for who has a transaction id already.
create or replace function deed.check_tenants(
  p_tenants uuid[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $$
declare
  v_tenant uuid;
begin
  for v_tenant in select distinct u from unnest(p_tenants) u where u is not null order by u loop
    begin
      insert into deed.tenant_removals (tenant_id, name, actor, reason, made_by)
      values (v_tenant, 'x', 'x', 'x', pg_current_xact_id())
      on conflict do nothing;
      raise exception using errcode = 'DDCON';
    exception when sqlstate 'DDCON' or lock_not_available then
      null;
    end;
  end loop;
end
$$;
