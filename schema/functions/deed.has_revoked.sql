-- deed.has_revoked: whether a contact has revoked to be written to over a channel for a
-- purpose (deed.consents_of), by whatever address; null without a contact or a purpose.
--
-- Beside deed.suppressed, which asks for the address: a delivery may name a contact and
-- go to an address that is none of its identities. p_contact is the tenant's; one that was
-- merged means the one it was merged into. Who asks of many asks deed.revoked, which calls this
-- of those alone of whom it may be true.
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
  return exists (
    select from deed.consents_of(array[deed.contact_of(p_tenant, p_contact)]) s
    where s.channel = p_channel and s.purpose = p_purpose and s.state = 'revoked'
  );
end
$$;
