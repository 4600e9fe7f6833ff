-- deed.idempotency_key: the SHA-256 of the parts of what must be done once (D2).
--
-- Each part is its length in bytes, as 8 bytes big-endian, and its UTF-8. Times
-- are given as RFC 3339 in UTC with microseconds: 2026-01-02T03:04:05.000006Z.
-- Go has the same function, and both the same test vectors.
create or replace function deed.idempotency_key(
  variadic p_parts text[]
) returns bytea
language sql
immutable strict parallel safe
return sha256((
  select string_agg(int8send(octet_length(convert_to(p.part, 'UTF8'))) || convert_to(p.part, 'UTF8'), '' order by p.n)
  from unnest(p_parts) with ordinality p(part, n)
));
