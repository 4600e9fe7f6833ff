-- deed.contact_of: the contact that an id means: itself, or the one that it has been
-- merged into; null if the tenant has none of that id.
create or replace function deed.contact_of(
  p_tenant uuid,
  p_id     uuid
) returns uuid
language sql
stable
begin atomic
  with recursive named as (
    select c.id, c.merged_into from deed.contacts c where c.tenant_id = p_tenant and c.id = p_id
    union all
    select c.id, c.merged_into from named n join deed.contacts c on c.id = n.merged_into
  )
  select n.id from named n where n.merged_into is null;
end;
