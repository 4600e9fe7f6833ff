-- deed.revoked: a row, with the reason, if a contact has revoked to be written to over a channel
-- for a purpose (deed.has_revoked); none without a contact or a purpose.
--
-- Mostly nothing was revoked and nobody merged, which is three looks into indexes. They become a
-- part of the statement that asks, since a function's call would cost several times as much.
create or replace function deed.revoked(
  p_tenant  uuid,
  p_contact uuid,
  p_channel text,
  p_purpose text
) returns table (reason text)
language sql
stable
begin atomic
  select 'suppressed: consent revoked'
  where case
    when p_contact is null or coalesce(p_purpose, '') = '' then false
    when exists (select from deed.consents e where e.contact_id = p_contact and e.channel = p_channel and e.purpose = p_purpose and e.state = 'revoked')
      -- By its id, whenever a plan was made that is kept: there may be many by now, and many of them merged.
      or exists (
        select from (select c.merged_into from deed.contacts c where c.tenant_id = p_tenant and c.id = p_contact offset 0) c where c.merged_into is not null
      )
      or exists (select from deed.contacts o where o.merged_into = p_contact)
    then deed.has_revoked(p_tenant, p_contact, p_channel, p_purpose)
    else false end;
end;
