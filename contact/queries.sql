-- The statements of package contact.

-- name: upsert
select id::text, outcome, others::text[]
from deed.upsert_contacts($1::int[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[], $7::boolean[], $8::text::uuid, $9::text);

-- name: merge
select deed.merge_contacts($1::text::uuid, $2::text::uuid, $3::text, $4::text, $5::text::uuid);

-- name: unmerge
select deed.unmerge_contacts($1::text::uuid, $2::text, $3::text, $4::text::uuid)::text;

-- name: contacts
-- A page of them, newest first: ids are of the time when they were made.
select c.id::text, c.tenant_id::text, c.data::text, coalesce(c.zone, ''), coalesce(c.locale, ''), c.created_at, c.updated_at, c.erased_at,
  coalesce(c.merged_into::text, '')
from deed.contacts c
where ($1::text is null or c.tenant_id = $1::text::uuid) and ($2::text is null or c.id < $2::text::uuid)
order by c.id desc
limit $3::int;

-- name: contact
select c.id::text, c.tenant_id::text, c.data::text, coalesce(c.zone, ''), coalesce(c.locale, ''), c.created_at, c.updated_at, c.erased_at,
  coalesce(c.merged_into::text, '')
from deed.contacts c
where c.id = $1::text::uuid;

-- name: identities
-- Of these contacts.
select i.contact_id::text, i.type, i.value, i.verified_at
from deed.contact_identities i
where i.contact_id = any ($1::text[]::uuid[])
order by i.contact_id, i.type, i.value;

-- name: known_as
select k.means::text
from (select (deed.check_identity($2::text, $3::text)).*) f
cross join lateral deed.known_as($1::text::uuid, $2::text, f.folded) k;

-- name: set_consents
select coalesce(state, '')
from deed.set_consents($1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]::jsonb[], $7::text::uuid, $8::text)
order by n;

-- name: confirm_consent
select deed.confirm_consent($1::text::uuid, $2::text, $3::text, $4::text::jsonb, $5::text::uuid, $6::text);

-- name: consents
select s.channel, s.purpose, coalesce(s.state, ''), s.at, s.expires_at
from deed.contacts c
cross join lateral deed.consents_of(array[deed.contact_of(c.tenant_id, c.id)]) s
where c.id = $1::text::uuid
order by s.channel, s.purpose;

-- name: words
-- A page of them, newest first.
select e.n, e.tenant_id::text, e.contact_id::text, e.channel, e.purpose, e.state, e.source, nullif(e.evidence, '{}')::text, e.actor, e.at, e.expires_at
from deed.consents e
where ($1::text is null or e.tenant_id = $1::text::uuid)
  and ($2::text is null or e.contact_id in (select deed.names_of($2::text::uuid)))
  and ($3::text is null or e.channel = $3::text)
  and ($4::text is null or e.purpose = $4::text)
  and e.n < $5::bigint
order by e.n desc
limit $6::int;
