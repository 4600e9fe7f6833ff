-- The roles, made once per cluster.
do $$
declare
  v_role text;
begin
  foreach v_role in array array['deed_app', 'deed_worker', 'deed_admin'] loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
      exception when duplicate_object or unique_violation then
        null; -- another migrator of this cluster made it just now
      end;
    end if;
  end loop;
end
$$;
