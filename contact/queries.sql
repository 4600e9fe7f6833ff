-- The statements of package contact.

-- name: upsert
select id::text, outcome, others::text[]
from deed.upsert_contacts($1::int[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[], $6::text[], $7::boolean[], $8::text::uuid, $9::text);

-- name: check
-- What deed.upsert_contacts refuses, in its words, but of all contacts and not of the
-- first. Each identity is looked at once; the zones are read only if some are given.
with identities as materialized (
  select i.n, i.type, c.folded, c.problem
  from unnest($1::int[], $2::text[], $3::text[]) i(n, type, value)
  cross join lateral deed.check_identity(i.type, i.value) c
)
select b.n, min(b.problem)
from (
  select i.n, format('%s: %s', left(i.type, 63), i.problem) as problem
  from identities i
  where i.problem is not null
  union all
  select i.n, 'it has over 100 identities'
  from identities i
  group by i.n
  having count(distinct (i.type, i.folded)) > 100
  union all
  select d.n, format('data of %s bytes are over the limit of 65536', pg_column_size(d.data))
  from unnest($4::text[]::jsonb[]) with ordinality d(data, n)
  where pg_column_size(d.data) > 65536
  union all
  select z.n, 'zone is not the name of a time zone, such as Europe/Berlin'
  from unnest($5::text[]) with ordinality z(zone, n)
  where z.zone !~ e'^([A-Za-z_]+(/[A-Za-z_-]+){1,2}|UTC|Etc/GMT[+-][0-9]{1,2})$'
    or lower(z.zone) <> all (array(select lower(t.name) from pg_timezone_names t))
  union all
  select l.n, 'locale is not a language tag, such as de or pt-BR'
  from unnest($6::text[]) with ordinality l(locale, n)
  where l.locale !~ '^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,4}$'
) b
group by b.n
order by b.n;

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

-- name: aliases
-- The contacts that were merged into one, through any number of merges.
select c.id::text, c.tenant_id::text, c.data::text, coalesce(c.zone, ''), coalesce(c.locale, ''), c.created_at, c.updated_at, c.erased_at,
  coalesce(c.merged_into::text, '')
from deed.names_of($1::text::uuid) a(id)
join deed.contacts c on c.id = a.id
where a.id <> $1::text::uuid
order by c.id;

-- name: identities
-- Of these contacts.
select i.contact_id::text, i.type, i.value, i.verified_at
from deed.contact_identities i
where i.contact_id = any ($1::text[]::uuid[])
order by i.contact_id, i.type, i.value;

-- name: known_as
select k.means::text
from (select (deed.check_identity($2::text, $3::text)).*) f
cross join lateral deed.known_as(coalesce($1::text::uuid, deed.current_tenant()), $2::text, f.folded) k;

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

-- name: conflicts
-- A page of them, newest first; of one contact also those of what was merged into it.
select o.n, o.tenant_id::text, o.contact_ids::text[], o.types, o.actor, o.at, o.times, o.settled_at
from deed.identity_conflicts o
where ($1::text is null or o.tenant_id = $1::text::uuid)
  and ($2::text is null or o.contact_ids && array(select a.id from deed.names_of($2::text::uuid) a(id)))
  and ($3::boolean or o.settled_at is null)
  and o.n < $4::bigint
order by o.n desc
limit $5::int;

-- name: erase
select deed.erase_contact($1::text::uuid, $2::text, $3::text, $4::text::uuid, $5::boolean, $6::boolean);

-- name: erasures
-- A page of them, newest first.
select e.n, e.tenant_id::text, e.contact_id::text, e.names::text[], e.reason, e.actor, e.at, e.deliveries, e.finished_at, e.suppressed
from deed.erasures e
where ($1::text is null or e.tenant_id = $1::text::uuid)
  and ($2::text is null or $2::text::uuid = any (e.names))
  and e.n < $3::bigint
order by e.n desc
limit $4::int;

-- name: export_erasures
select n, tenant_id::text, contact_id::text, names::text[], reason, actor, at, 0::bigint, null::timestamptz, suppressed
from deed.export_erasures($1::int, $2::boolean);

-- name: leave
select deed.unsubscribe($1::text::uuid, $2::text, $3::text, $4::text::uuid, $5::text::uuid, $6::text);
