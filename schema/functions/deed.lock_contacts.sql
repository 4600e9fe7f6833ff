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
  v_bad record;
begin
  perform from (
    select c.id from deed.contacts c
    where c.id = any (array(select distinct u.id from unnest(p_contacts) u(id))) and c.tenant_id = p_tenant
    order by c.id
    for key share
  ) locked;
  select u.id, c.erased_at into v_bad
  from unnest(p_contacts) u(id)
  left join deed.contacts c on c.id = u.id and c.tenant_id = p_tenant
  where u.id is not null and (c.id is null or c.erased_at is not null)
  limit 1;
  if found and v_bad.erased_at is null then
    raise exception '%: there is no contact %', p_call, v_bad.id using errcode = 'DDNFD';
  elsif found then
    raise exception '%: contact % has been erased', p_call, v_bad.id using errcode = 'DDCON';
  end if;
end
$$;
