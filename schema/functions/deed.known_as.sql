-- deed.known_as: the contact that is known by an identity, and the one that it means
-- (deed.contact_of). p_value is as values are compared (deed.check_identity). Without
-- settings of its own, so that it is planned as part of what asks it.
create or replace function deed.known_as(
  p_tenant uuid,
  p_type   text,
  p_value  text
) returns table (contact_id uuid, means uuid)
language sql
stable
begin atomic
  select i.contact_id, case when c.merged_into is null then c.id else deed.contact_of(p_tenant, c.id) end
  from (
    select e.contact_id from deed.contact_identities e
    where e.tenant_id = p_tenant and p_type = 'email' and e.type = 'email' and lower(e.value) = lower(p_value)
    union all
    select x.contact_id from deed.contact_identities x
    where x.tenant_id = p_tenant and p_type = 'external_id' and x.type = 'external_id' and x.value = p_value
    union all
    select o.contact_id from deed.contact_identities o
    where o.tenant_id = p_tenant and p_type not in ('external_id', 'email') and o.type not in ('external_id', 'email')
      and o.type = p_type and o.value = p_value
  ) i
  join deed.contacts c on c.id = i.contact_id;
end;
