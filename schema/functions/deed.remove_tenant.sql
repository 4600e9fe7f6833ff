-- deed.remove_tenant: remove a tenant with all of its rows; an operator's act. There is
-- no way back, and its id is never used again.
--
-- A short transaction: when it has committed, nobody publishes, reserves or writes
-- anything else for the tenant, nothing of it is claimed, read or called, and logins that
-- were bound to it see nothing of it. One that was bound to no other is shut: it is not
-- trusted to set a tenant, as one that is bound to none is, until deed.bind_login says
-- what it may. deed.remove_tenant_step, which relays call, takes the rows away. The audit
-- log keeps the tenant's rows, without what people and providers wrote in them.
--
-- True, or false if it was asked for before. Raises as deed.check_tenant_removal, DDARG
-- without a reason, and 55P03 while another transaction that has not ended is changing
-- tenants, logins or subscriptions.
create or replace function deed.remove_tenant(
  p_tenant uuid,
  p_reason text,
  p_by     text default null
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_actor  text := coalesce(p_by, session_user);
  v_name   text;
  v_logins text[];
begin
  perform deed.check_tenant_removal('remove_tenant', p_tenant);
  if length(p_by) not between 1 and 200 or coalesce(length(btrim(p_reason)), 0) not between 1 and 2000 or length(p_reason) > 2000 then
    raise exception 'remove_tenant: a reason of 1 to 2000 characters is needed, and who asks is a name of up to 200' using errcode = 'DDARG';
  end if;
  begin
    lock table deed.list_lock in row exclusive mode; -- see deed.level_list
    perform from deed.settings s for update; -- as deed.bind_login
    -- Not against those who reserve: they only keep it from being deleted.
    select t.name into v_name from deed.tenants t where t.tenant_id = p_tenant for no key update;
    if deed.is_removed(p_tenant) then
      return false;
    end if;
    perform nextval('deed.list_seq'); -- so that publishers under REPEATABLE READ look
    with gone as (
      delete from deed.tenant_logins l where l.tenant_id = p_tenant returning l.login
    )
    select coalesce(array_agg(g.login order by g.login), '{}') into v_logins from gone g;
    insert into deed.shut_logins (login)
    select u.login from unnest(v_logins) u(login)
    where not exists (select from deed.tenant_logins l where l.login = u.login)
    on conflict do nothing;
    insert into deed.tenant_removals (tenant_id, name, actor, reason, made_by, taken)
    values (p_tenant, v_name, v_actor, p_reason, pg_current_xact_id(),
      case when v_logins = '{}' then '{}' else jsonb_build_object('tenant_logins', cardinality(v_logins)) end);
    update deed.settings set removed_tenants = true; -- each time, so that who binds a login under an older snapshot is told (40001)
  exception when lock_not_available then
    raise exception 'remove_tenant: a transaction that has not ended is changing tenants, logins or subscriptions'
      using errcode = '55P03', hint = 'deed doctor names it.';
  end;
  insert into deed.audit_log (actor, action, subject_type, subject_id, reason, details)
  values (v_actor, 'tenant removed', 'tenant', p_tenant::text, p_reason, jsonb_build_object('name', v_name, 'logins', to_jsonb(v_logins)));
  return true;
end
$$;
