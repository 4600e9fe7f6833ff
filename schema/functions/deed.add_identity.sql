-- deed.add_identity: a contact is known by this, too; the contact is made if there is
-- none of that id.
--
-- Returns the value as it is compared (deed.check_identity). deed.upsert_contacts finds
-- out who somebody is; here that is known. Raises DDARG, DDTEN, DDNFD for the id of
-- a contact that is not the tenant's, DDCON for one that was erased, and 23505 with the
-- constraint's name, and without the value, where somebody is known by it already (O15).
create or replace function deed.add_identity(
  p_contact  uuid,
  p_type     text,
  p_value    text,
  p_verified boolean default false,
  p_tenant   uuid default null,
  p_actor    text default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan -- where plans were made while there was nobody, they read tables whole
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_tenant uuid := deed.tenant_of_call('add_identity', p_tenant);
  v_actor  text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_now    timestamptz := clock_timestamp();
  v_value  record;
  v_root   uuid;
  v_made   bigint;
  v_index  text;
begin
  if p_contact is null then
    raise exception 'add_identity: contact is null' using errcode = 'DDARG';
  end if;
  select i.folded, i.problem into v_value from deed.check_identity(p_type, p_value) i;
  if v_value.folded is null then
    raise exception 'add_identity: %: %', coalesce(left(p_type, 63), 'identity'), v_value.problem using errcode = 'DDARG';
  end if;
  insert into deed.contacts (id, tenant_id, created_at, updated_at) values (p_contact, v_tenant, v_now, v_now) on conflict do nothing;
  get diagnostics v_made = row_count;
  v_root := deed.contact_of(v_tenant, p_contact);
  if v_root is null then
    raise exception 'add_identity: contact % is not the tenant''s', p_contact using errcode = 'DDNFD';
  end if;
  -- The value first and the contact then, as in deed.upsert_contacts. Who looks before the
  -- row waits for others without an entry of the contact's, which they may want.
  insert into deed.contact_identities (tenant_id, contact_id, type, value, verified_at, created_at)
  values (v_tenant, v_root, p_type, v_value.folded, case when p_verified then v_now end, v_now)
  on conflict do nothing;
  if not found then
    begin
      insert into deed.contact_identities (tenant_id, contact_id, type, value, verified_at, created_at)
      values (v_tenant, v_root, p_type, v_value.folded, case when p_verified then v_now end, v_now);
    exception when unique_violation then
      get stacked diagnostics v_index = constraint_name;
      -- Without the detail, which has the value and would stand in the server's log.
      raise exception 'duplicate key value violates unique constraint "%"', v_index
        using errcode = '23505', constraint = v_index, schema = 'deed', table = 'contact_identities',
          detail = format('Somebody is known by this %s already.', p_type);
    end;
  end if;
  perform from deed.contacts c where c.id = v_root for no key update;
  if deed.contact_of(v_tenant, p_contact) is distinct from v_root then
    raise exception 'add_identity: the contact has been merged, or taken from another, meanwhile' using errcode = '40001';
  elsif exists (select from deed.contacts c where c.id = v_root and c.erased_at is not null) then
    raise exception 'add_identity: contact % has been erased', p_contact using errcode = 'DDCON';
  end if;
  if 100 < (select count(*) from deed.names_of(v_root) m(id) join deed.contact_identities i on i.contact_id = m.id) then
    raise exception 'add_identity: with it contact % would have over 100 identities', p_contact using errcode = 'DDARG';
  end if;
  update deed.contacts c set updated_at = v_now where c.id = v_root;
  perform deed.apply_consents(v_tenant, array[v_root], v_actor);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, affected, details)
  values (v_tenant, v_actor, 'upsert', 'contact', v_root::text, 1, jsonb_build_object('asked', 1, 'created', v_made, 'conflicts', 0));
  return v_value.folded;
end
$$;
