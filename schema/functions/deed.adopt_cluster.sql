-- deed.adopt_cluster: let what holds here go on. The installation belongs to this
-- server and database from now on, and to p_environment; null: to the one that it
-- belongs to already.
--
-- Raises DDARG without a reason. Returns what held, null if nothing did; if
-- nothing is to be changed, nothing is, and the audit log is silent.
create or replace function deed.adopt_cluster(
  p_reason      text,
  p_by          text default null,
  p_environment text default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_was deed.settings%rowtype;
  v_is  deed.settings%rowtype;
  v_why text;
begin
  if coalesce(p_reason, '') !~ e'\\S' or length(p_reason) > 2000 or length(p_by) not between 1 and 200 or length(p_environment) not between 1 and 100 then
    raise exception 'adopt_cluster: a reason of up to 2000 characters is needed; who asks has 1 to 200, an environment 1 to 100' using errcode = 'DDARG';
  end if;
  select s.* into v_was from deed.settings s for update;
  v_why := deed.held(true, p_environment);
  update deed.settings s
  set system_identifier = c.system_identifier, database_oid = d.oid::bigint, environment = coalesce(p_environment, s.environment)
  from pg_control_system() c, pg_database d
  where d.datname = current_database()
    and (s.system_identifier, s.database_oid, s.environment) is distinct from (c.system_identifier, d.oid::bigint, coalesce(p_environment, s.environment))
  returning s.* into v_is;
  if found then
    insert into deed.audit_log (actor, action, subject_type, subject_id, from_status, to_status, reason, details)
    values (coalesce(p_by, session_user), 'adopt', 'cluster', v_is.system_identifier::text, v_was.environment, v_is.environment, p_reason,
      jsonb_build_object('was', v_was.system_identifier::text, 'why', v_why));
  end if;
  return v_why;
end
$$;
