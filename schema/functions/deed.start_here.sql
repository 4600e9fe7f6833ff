-- deed.start_here: deed.held, for a process that starts: p_on_new_cluster is
-- hold, continue, or null of one that holds for another environment alone, if it
-- names one.
--
-- If nothing holds it, and the installation belongs to no server yet, it belongs
-- to this one from now on; likewise to the environment that the process names.
create or replace function deed.start_here(
  p_on_new_cluster text,
  p_environment    text
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_hold  constant boolean := coalesce(p_on_new_cluster = 'hold', false);
  v_names constant text := nullif(p_environment, '');
  v_asks  constant text := case p_on_new_cluster when 'hold' then coalesce(v_names, '') when 'continue' then null else v_names end;
  v_why text;
begin
  if p_on_new_cluster not in ('hold', 'continue') or length(v_names) > 100 then
    raise exception 'start_here: p_on_new_cluster is hold, continue or null, and an environment has up to 100 characters' using errcode = 'DDARG';
  end if;
  v_why := deed.held(v_hold, v_asks);
  if v_why is not null then
    return v_why;
  end if;
  if exists (select from deed.settings s where s.system_identifier is null) then
    update deed.settings s
    set system_identifier = c.system_identifier, database_oid = d.oid::bigint
    from pg_control_system() c, pg_database d
    where s.system_identifier is null and d.datname = current_database();
  end if;
  if v_names is not null and exists (select from deed.settings s where s.environment is null) then
    update deed.settings s set environment = v_names where s.environment is null;
    if found then
      insert into deed.audit_log (actor, action, subject_type, to_status)
      values (session_user, 'environment', 'cluster', v_names);
    end if;
  end if;
  return deed.held(v_hold, v_asks); -- another may have come first
end
$$;
