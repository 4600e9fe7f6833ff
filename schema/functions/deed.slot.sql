-- deed.slot: which of a topic's 64 slots a message belongs to.
--
-- A key's slot never changes, on any platform or version; without a key
-- messages are spread by their number.
create or replace function deed.slot(
  p_base int,
  p_key  text,
  p_id   bigint
) returns int
language sql
immutable parallel safe
set search_path = pg_catalog, pg_temp
return p_base + case
  when p_key is null then (p_id & 63)::int
  else get_byte(sha256(convert_to(p_key, 'UTF8')), 0) & 63
end;
