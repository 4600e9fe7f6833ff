-- deed.check_tenant_removal: raise for whom p_tenant cannot be removed by: DDARG for the
-- default tenant, to whom all belongs that names none; DDTEN where the transaction has
-- set another tenant, or the login is bound to tenants; DDNFD for one that is not
-- registered and never was. For deed.remove_tenant and deed.count_tenant.
create or replace function deed.check_tenant_removal(
  p_call   text,
  p_tenant uuid
) returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_tenant is null then
    raise exception '%: a tenant''s id is needed', p_call using errcode = 'DDARG';
  end if;
  if p_tenant = '00000000-0000-0000-0000-000000000000' then
    raise exception '%: everything that names no tenant belongs to the default one', p_call using errcode = 'DDARG';
  end if;
  if exists (select from deed.tenant_logins l where l.login = session_user) or exists (select from deed.shut_logins l where l.login = session_user) then
    raise exception '%: this login is bound to tenants, and removes none', p_call using errcode = 'DDTEN';
  end if;
  if coalesce(current_setting('app.current_tenant_id', true), '') <> '' and deed.current_tenant() is distinct from p_tenant then
    raise exception '%: the tenant is not the one that the transaction has set', p_call using errcode = 'DDTEN';
  end if;
  if not exists (select from deed.tenants t where t.tenant_id = p_tenant) and not deed.is_removed(p_tenant) then
    raise exception '%: tenant % is not registered', p_call, p_tenant
      using errcode = 'DDNFD', hint = 'What it has goes once it is registered: deed tenant add NAME --id.';
  end if;
end
$$;
