-- deed.is_removed: whether a tenant was removed, or is being so (deed.remove_tenant).
-- Not in SQL: its plan would be made anew for each of the calls that ask.
create or replace function deed.is_removed(
  p_tenant uuid
) returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (select from deed.tenant_removals r where r.tenant_id = p_tenant);
end
$$;
