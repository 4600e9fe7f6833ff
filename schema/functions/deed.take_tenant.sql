-- deed.take_tenant: the part of deed.remove_tenant_step that takes rows of one kind away.
--
-- at_sub and at_id are how far it has come, and left_some that others had rows locked;
-- all are as at first when it is over. did:
--   going  there may be more
--   waits  the rest is locked by others
--   over   nothing is left
--   again  something has come of a kind that was over
create or replace function deed.take_tenant(
  in    p_tenant  uuid,
  in    p_what    text,
  inout at_sub    int,
  inout at_id     bigint,
  inout left_some boolean,
  in    p_limit   int,
  out   did       text,
  out   taken     jsonb
) returns record
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_sub    int := at_sub;
  v_at     bigint := at_id;
  v_logins bigint := 0;
  v_part   record;
begin
  begin
    case p_what
    when 'pending' then
      select p.* into v_part from deed.take_tenant_pending(p_tenant, at_sub, at_id, p_limit) p;
      taken := jsonb_build_object('pending', v_part.taken);
      left_some := left_some or v_part.left_some;
      did := case when v_part.more then 'going' when left_some then 'waits' else 'over' end;
      at_sub := v_part.at_sub;
      at_id := v_part.at_id;
      if did <> 'going' then
        left_some := false;
        at_sub := -1;
        at_id := 0;
      end if;
    when 'log' then
      select p.* into v_part from deed.take_tenant_log(p_tenant, at_id, 4 * p_limit::bigint) p;
      taken := jsonb_build_object('log', v_part.taken);
      did := case when v_part.more then 'going' else 'over' end;
      at_id := v_part.at_id;
    when 'audit_log' then
      with emptied as (
        update deed.audit_log a
        set reason = case when a.reason is not null then 'erased' end, subject_id = case when a.subject_type not in ('suppression', 'plan') then a.subject_id end,
          details = a.details - array['last_error', 'error', 'source', 'message_id']
        where a.n > v_at and a.n <= v_at + 4 * p_limit and a.tenant_id = p_tenant
          and (a.reason <> 'erased' or a.details ?| array['last_error', 'error', 'source', 'message_id'] or (a.subject_type in ('suppression', 'plan') and a.subject_id is not null))
        returning 1
      )
      select jsonb_build_object('audit_log', count(*)) into taken from emptied;
      at_id := v_at + 4 * p_limit;
      did := case when exists (select from deed.audit_log a where a.n > at_id) then 'going' else 'over' end;
      at_id := case did when 'going' then at_id else 0 end;
    when 'tenants' then
      update deed.redrives o
      set asked = o.asked - 'error', reason = case when o.reason is not null then 'erased' end
      where o.asked ->> 'tenant' = p_tenant::text;
      -- deed.remove_tenant has taken these; but older versions bound a login beside it.
      if exists (select from deed.tenant_logins l where l.tenant_id = p_tenant) then
        perform from deed.settings s for update; -- as deed.bind_login
        with gone as (
          delete from deed.tenant_logins l where l.tenant_id = p_tenant returning l.login
        ),
        shut as (
          insert into deed.shut_logins (login)
          select g.login from gone g
          where not exists (select from deed.tenant_logins l where l.login = g.login and l.tenant_id <> p_tenant)
          on conflict do nothing
        )
        select count(*) into v_logins from gone;
      end if;
      delete from deed.tenants t where t.tenant_id = p_tenant;
      taken := jsonb_build_object('tenants', 1, 'tenant_logins', v_logins);
      -- Whoever makes a pause keeps the row of its tenant (deed.pause).
      with gone as (
        delete from deed.pauses p where p.tenant_id = p_tenant returning 1
      )
      select taken || jsonb_build_object('pauses', count(*)) into taken from gone;
      did := 'over';
    else
      select p.* into v_part from deed.take_tenant_rows(p_tenant, p_what, p_limit) p;
      taken := v_part.taken;
      did := v_part.did;
    end case;
  exception
    when lock_not_available or deadlock_detected then
      did := 'waits';
      taken := '{}';
      at_sub := v_sub;
      at_id := v_at;
    when foreign_key_violation then
      did := 'again';
      taken := '{}';
  end;
  select coalesce(jsonb_object_agg(o.key, o.value), '{}') into taken from jsonb_each(taken) o where o.value <> '0';
end
$$;
