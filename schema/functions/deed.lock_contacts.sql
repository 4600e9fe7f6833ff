-- deed.lock_contacts: keep contacts from being erased until the caller's transaction has
-- ended (deed.erase_contact), and nothing else from being done to them. p_call names
-- the caller in errors. Raises DDNFD for one that the tenant does not have, DDCON for
-- one that was erased.
create or replace function deed.lock_contacts(
  p_call     text,
  p_tenant   uuid,
  p_contacts uuid[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
  v_ids  uuid[] := array(select distinct u.id from unnest(p_contacts) u(id) where u.id is not null);
  v_held bigint;
  v_bad  record;
begin
  select count(*) into v_held
  from (
    select c.id, c.erased_at from deed.contacts c
    where c.id = any (v_ids) and c.tenant_id = p_tenant
    order by c.id
    for key share
  ) locked
  where locked.erased_at is null;
  if v_held = cardinality(v_ids) then
    return;
  end if;
  select u.id, c.erased_at into v_bad
  from unnest(v_ids) u(id)
  left join deed.contacts c on c.id = u.id and c.tenant_id = p_tenant
  where c.id is null or c.erased_at is not null
  limit 1;
  if v_bad.erased_at is null then
    raise exception '%: there is no contact %', p_call, v_bad.id using errcode = 'DDNFD';
  end if;
  raise exception '%: contact % has been erased', p_call, v_bad.id using errcode = 'DDCON';
end
$$;
