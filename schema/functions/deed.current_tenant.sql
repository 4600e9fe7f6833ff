-- deed.current_tenant: the tenant whose rows the session may see, or null for
-- nobody's (D7). What all policies for the application ask.
--
-- It is what app.current_tenant_id says; with nothing set, the default tenant
-- of an installation that has no other. A setting that is no UUID is no tenant
-- and no error: an error would tell whether there is a row to judge. A login
-- that is bound (deed.bind_login) sees its tenants only, whatever the setting
-- says; with nothing set, its one, if it has one. One whose last tenant was removed
-- (deed.shut_logins) sees nobody's.
--
-- SECURITY DEFINER: nobody need be able to read whom others are bound to. The
-- login is session_user, which neither SET ROLE nor a function changes.
create or replace function deed.current_tenant() returns uuid
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_text   text := coalesce(current_setting('app.current_tenant_id', true), '');
  v_single boolean;
  v_bound  boolean;
  v_own    uuid[];
begin
  if v_text <> '' and v_text !~* '^([0-9a-f]{4}-?){7}[0-9a-f]{4}$' then
    return null;
  end if;
  select s.single_tenant, s.bound_logins into v_single, v_bound from deed.settings s;
  if v_bound then
    v_own := array(select l.tenant_id from deed.tenant_logins l where l.login = session_user);
    if v_own <> '{}' or exists (select from deed.shut_logins l where l.login = session_user) then
      return case
        when v_text <> '' then (select o from unnest(v_own) o where o = v_text::uuid)
        when cardinality(v_own) = 1 then v_own[1]
      end;
    end if;
  end if;
  return case
    when v_text <> '' then v_text::uuid
    when v_single then '00000000-0000-0000-0000-000000000000'::uuid
  end;
end
$$;
