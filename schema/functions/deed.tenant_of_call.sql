-- deed.tenant_of_call: the tenant that a call is for, checked (D7).
--
-- p_tenant null: the one that the transaction has set, or the default one of a
-- single-tenant installation. Roles that cross tenants may name any while none
-- is set. Raises DDTEN for another's or none, DDNFD for one that is not
-- registered, DDCON for one that was removed, or is being so; and 40001 where a
-- transaction's snapshot hides that.
create or replace function deed.tenant_of_call(
  p_call   text,
  p_tenant uuid
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_unset   boolean := coalesce(current_setting('app.current_tenant_id', true), '') = '';
  v_crosses boolean := pg_has_role(session_user, 'deed_worker', 'member') or pg_has_role(session_user, 'deed_admin', 'member');
  v_tenant  uuid := coalesce(case when v_unset and v_crosses then p_tenant end, deed.current_tenant());
begin
  if v_tenant is null then
    raise exception '%', p_call || case
        when v_unset then ': no tenant is set; run select set_config(''app.current_tenant_id'', ''…'', true) in the transaction'
        else ': app.current_tenant_id is not a UUID, or is a tenant that this login is not bound to' end
      using errcode = 'DDTEN';
  end if;
  if p_tenant is not null and p_tenant <> v_tenant then
    raise exception '%: the tenant is not the one that the transaction has set', p_call using errcode = 'DDTEN';
  end if;
  if current_setting('transaction_isolation') <> 'read committed'
    and pg_sequence_last_value('deed.list_seq') is distinct from (select s.list_version from deed.settings s)
  then
    perform deed.check_tenants(array[v_tenant]);
  end if;
  if deed.is_removed(v_tenant) then
    raise exception '%: tenant % was removed', p_call, v_tenant using errcode = 'DDCON';
  end if;
  if not exists (select from deed.tenants t where t.tenant_id = v_tenant) then
    raise exception '%: tenant % is not registered', p_call, v_tenant
      using errcode = 'DDNFD', hint = 'Register it with: deed tenant add';
  end if;
  return v_tenant;
end
$$;
