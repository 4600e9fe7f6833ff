-- deed.add_tenant: register a tenant; from the first one on the installation
-- is no longer single-tenant, and who sets no tenant sees nothing (D7). The default
-- one, which is there from the beginning, is no further one.
--
-- Raises DDCON when the id or the name is taken by another, or the id was that of
-- one that was removed, DDARG for a bad name. The same id and name again is no error.
create or replace function deed.add_tenant(
  p_tenant uuid,
  p_name   text
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_tenant is null or coalesce(length(p_name), 0) not between 1 and 200 then
    raise exception 'add_tenant: an id and a name of 1 to 200 characters are needed' using errcode = 'DDARG';
  end if;
  if deed.is_removed(p_tenant) then
    raise exception 'add_tenant: the id % is that of a tenant that was removed', p_tenant using errcode = 'DDCON', hint = 'Take a new one.';
  end if;
  insert into deed.tenants (tenant_id, name) values (p_tenant, p_name) on conflict do nothing;
  if not exists (select from deed.tenants t where t.tenant_id = p_tenant and t.name = p_name) then
    raise exception 'add_tenant: the id % or the name % belongs to another tenant', p_tenant, quote_literal(p_name)
      using errcode = 'DDCON';
  end if;
  update deed.settings set single_tenant = false where single_tenant and p_tenant <> '00000000-0000-0000-0000-000000000000';
end
$$;
