-- public.contact_identities: by what contacts are known, as seed 004's table shows
-- it, and takes it: INSERT gives a contact an identity, and makes the contact.
create or replace view public.contact_identities with (security_invoker = true) as
select i.tenant_id, i.contact_id, i.type, i.value, i.verified_at, i.created_at
from deed.contact_identities i;

create or replace trigger identity_written instead of insert or update or delete on public.contact_identities
  for each row execute function deed.identity_written();
