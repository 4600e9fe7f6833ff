-- deed.bind_login: hold a login to tenants, or to none any more (D7).
--
-- p_tenants takes the place of what the login was bound to before; empty lets
-- it go: then it is trusted to set its tenant, as every other, also one that the
-- removal of its last tenant had shut. It holds from the next statement of its sessions on. Raises DDARG for a login that does not
-- exist or that crosses tenants in any case (a superuser, one that bypasses
-- row-level security, the schema's owner, one that holds deed_worker or
-- deed_admin), DDNFD for a tenant that is not registered.
create or replace function deed.bind_login(
  p_login   text,
  p_tenants uuid[],
  p_reason  text,
  p_actor   text
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_login  record;
  v_absent uuid;
  v_before uuid[];
  v_after  uuid[] := array(select distinct u from unnest(p_tenants) u where u is not null order by u);
begin
  if coalesce(p_reason, '') = '' or coalesce(p_actor, '') = '' or length(p_actor) > 200 or length(p_reason) > 2000 then
    raise exception 'bind_login: a reason and an actor are needed' using errcode = 'DDARG';
  end if;
  if cardinality(v_after) > 1000 then
    raise exception 'bind_login: a login is bound to 1,000 tenants at most, got %', cardinality(v_after) using errcode = 'DDARG';
  end if;
  select r.oid, r.rolsuper or r.rolbypassrls or r.oid = (select n.nspowner from pg_namespace n where n.nspname = 'deed')
      or pg_has_role(r.oid, 'deed_worker', 'member') or pg_has_role(r.oid, 'deed_admin', 'member') as crosses
  into v_login
  from pg_roles r
  where r.rolname = p_login;
  if not found and cardinality(v_after) > 0 then
    raise exception 'bind_login: there is no login %', coalesce(quote_literal(left(p_login, 60)), 'null') using errcode = 'DDARG';
  end if;
  if v_login.crosses and cardinality(v_after) > 0 then
    raise exception 'bind_login: % crosses tenants: it is a superuser, passes row-level security, owns the schema, or holds deed_worker or deed_admin', p_login
      using errcode = 'DDARG', hint = 'Bind a login that holds deed_app alone.';
  end if;

  -- One after the other: settings.bound_logins sums them up, and deed.remove_tenant takes turns
  -- with it: what was removed meanwhile is seen under the lock only.
  perform from deed.settings s for update;
  select u into v_absent from unnest(v_after) u where deed.is_removed(u) or not exists (select from deed.tenants t where t.tenant_id = u) limit 1;
  if found then
    raise exception 'bind_login: tenant % is not registered, or was removed', v_absent using errcode = 'DDNFD', hint = 'Register it with: deed tenant add';
  end if;
  v_before := array(select l.tenant_id from deed.tenant_logins l where l.login = p_login order by l.tenant_id);
  delete from deed.shut_logins l where l.login = p_login;
  if v_before = v_after and not found then
    if v_login.oid is null then
      raise exception 'bind_login: there is no login %, and none of that name is bound', coalesce(quote_literal(left(p_login, 60)), 'null') using errcode = 'DDARG';
    end if;
    return false;
  end if;
  delete from deed.tenant_logins l where l.login = p_login and l.tenant_id <> all (v_after);
  insert into deed.tenant_logins (login, tenant_id) select p_login, u from unnest(v_after) u on conflict do nothing;
  update deed.settings s set bound_logins = v.bound
  from (select exists (select from deed.tenant_logins) or exists (select from deed.shut_logins) as bound) v
  where s.bound_logins <> v.bound;
  insert into deed.audit_log (actor, action, subject_type, subject_id, reason, affected, details)
  values (p_actor, case when v_after = '{}' then 'unbind' else 'bind' end, 'login', p_login, p_reason, greatest(cardinality(v_after), 1),
    jsonb_build_object('tenants', to_jsonb(v_after), 'before', to_jsonb(v_before)));
  return true;
end
$$;
