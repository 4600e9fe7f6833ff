-- What the migrations themselves need: the roles, made once per cluster, the
-- schema, and the record of what has been applied.
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

create schema if not exists deed;

create table if not exists deed.migrations (
  version    int         not null,
  name       text        not null,
  breaking   boolean     not null,
  hash       text        not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint migrations_pkey primary key (version)
);

grant select on deed.migrations to deed_app, deed_worker, deed_admin;
grant usage on schema deed to deed_app, deed_worker, deed_admin;
