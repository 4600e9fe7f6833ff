-- The statements of seals. Each is prepared by New, so that one that does not fit the installed
-- schema fails there and in CI, not at first use.

-- name: point
select p.upto, p.writers from deed.audit_point() p;

-- name: passed
select deed.audit_passed($1::text[]);

-- name: last
select s.k, s.upto_n, s.sha256 from deed.audit_seals s order by s.k desc limit 1;

-- name: unsealed
select a.n, a.at, a.tenant_id::text, a.run_id::text, a.actor, a.login, a.action, a.subject_type, a.subject_id, a.from_status, a.to_status, a.reason, a.affected, a.details::text
from deed.audit_unsealed($1::bigint, $2::int) a;

-- name: put
select deed.put_audit_seal($1::bigint, $2::bigint, $3::bytea, $4::bytea, $5::bytea, $6::text, $7::bytea, $8::timestamptz, $9::bigint[], $10::text[], $11::bytea[], $12::bytea[]);

-- name: installation
select s.installation::text, clock_timestamp() from deed.settings s;

-- name: seals
select s.k, s.from_n, s.upto_n, s.rows, s.at, s.leaves, s.previous, s.sha256, s.key, s.signature
from deed.audit_seals s
where s.k > $1::bigint
order by s.k
limit 1;

-- name: rows
-- With the hashes of what was sealed blind, as parts, salts and hashes in one order.
select a.n, a.at, a.tenant_id::text, a.run_id::text, a.actor, a.login, a.action, a.subject_type, a.subject_id, a.from_status, a.to_status, a.reason, a.affected, a.details::text,
  b.parts, b.salts, b.hashes
from deed.audit_log a
left join lateral (
  select array_agg(o.part order by o.part) as parts, array_agg(coalesce(o.salt, ''::bytea) order by o.part) as salts, array_agg(o.sha256 order by o.part) as hashes
  from deed.audit_blinds o
  where o.n = a.n
) b on true
where a.n > $1::bigint and a.n <= $2::bigint
order by a.n
limit $3::int;
