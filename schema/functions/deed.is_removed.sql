-- deed.is_removed: whether a tenant was removed, or is being so (deed.remove_tenant).
create or replace function deed.is_removed(
  p_tenant uuid
) returns boolean
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from deed.tenant_removals r where r.tenant_id = p_tenant)
$$;
