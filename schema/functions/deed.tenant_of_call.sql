-- deed.tenant_of_call: the tenant that a call is for, checked (D7).
--
-- p_tenant null: the one that the transaction has set, or the default one of a
-- single-tenant installation. Roles that cross tenants may name any while none
-- is set. Raises DDTEN for another's or none, DDNFD for one that is not
-- registered.
create or replace function deed.tenant_of_call(
  p_call   text,
  p_tenant uuid
) returns uuid
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_current uuid := nullif(current_setting('app.current_tenant_id', true), '');
  v_single  boolean := (select s.single_tenant from deed.settings s);
  v_crosses boolean := pg_has_role(session_user, 'deed_worker', 'member') or pg_has_role(session_user, 'deed_admin', 'member');
  v_tenant  uuid;
begin
  v_tenant := coalesce(v_current, case when v_crosses then p_tenant end,
    case when v_single then '00000000-0000-0000-0000-000000000000'::uuid end);
  if v_tenant is null then
    raise exception '%: no tenant is set; run select set_config(''app.current_tenant_id'', ''…'', true) in the transaction', p_call
      using errcode = 'DDTEN';
  end if;
  if p_tenant is not null and p_tenant <> v_tenant then
    raise exception '%: the tenant is not the one that the transaction has set', p_call using errcode = 'DDTEN';
  end if;
  if not exists (select from deed.tenants t where t.tenant_id = v_tenant) then
    raise exception '%: tenant % is not registered', p_call, v_tenant
      using errcode = 'DDNFD', hint = 'Register it with: deed tenant add';
  end if;
  return v_tenant;
end
$$;
