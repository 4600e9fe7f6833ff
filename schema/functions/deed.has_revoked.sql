-- deed.has_revoked: whether a contact has revoked to be written to over a channel for a
-- purpose (deed.consents_of), by whatever address; null without a contact or a purpose,
-- and then it is not even called, so that what names nobody pays nothing for it.
--
-- Beside deed.suppressed, which asks for the address: a delivery may name a contact and
-- go to an address that is none of its identities. Mostly nothing was revoked and nobody
-- merged, which is three looks into indexes. p_contact is the tenant's; one that was
-- merged means the one it was merged into.
create or replace function deed.has_revoked(
  p_tenant  uuid,
  p_contact uuid,
  p_channel text,
  p_purpose text
) returns boolean
language plpgsql
stable strict
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  -- Apart from what follows, which is much to begin with.
  if not exists (select from deed.consents e where e.contact_id = p_contact and e.channel = p_channel and e.purpose = p_purpose and e.state = 'revoked')
    and not exists (select from deed.contacts c where c.id = p_contact and c.merged_into is not null)
    and not exists (select from deed.contacts o where o.merged_into = p_contact)
  then
    return false;
  end if;
  return exists (
    select from deed.consents_of(array[deed.contact_of(p_tenant, p_contact)]) s
    where s.channel = p_channel and s.purpose = p_purpose and s.state = 'revoked'
  );
end
$$;
