-- deed.held: why what sends is to hold here; null: nothing is in its way.
--
-- p_cluster: another server or database than the one that the installation
-- belongs to is a reason, as after a restore, pg_upgrade or a cut-over; a standby
-- that was promoted is the same one. p_environment: so is another environment
-- than the installation's, as in a copy of the volume, which keeps the rest;
-- empty: of a process that names none; null: it is not asked. Publishing and
-- reserving never ask.
create or replace function deed.held(
  p_cluster     boolean,
  p_environment text
) returns text
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_cluster and s.system_identifier <> c.system_identifier
      then format('the server is another than the one that deed knows (system identifier %s, here %s): it was restored, upgraded or cut over to',
        s.system_identifier, c.system_identifier)
    when p_cluster and s.database_oid <> d.oid::bigint
      then format('the database is another than the one that deed knows (oid %s, here %s): it was restored, or copied on its own server',
        s.database_oid, d.oid::bigint)
    when s.environment <> p_environment
      then format('the installation belongs to the environment %s, and this process %s', to_json(s.environment),
        case p_environment when '' then 'names none (environment: of deed.yaml, Environment of the options)' else format('to %s', to_json(p_environment)) end)
  end
  from deed.settings s
  cross join pg_control_system() c
  cross join pg_database d
  where d.datname = current_database()
$$;
