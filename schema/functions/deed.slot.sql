-- deed.slot: which of a topic's 64 slots a message belongs to.
--
-- A key's slot never changes, on any platform or version; without a key
-- messages are spread by their number. Called stable, for convert_to is: else
-- calls are not inlined.
create or replace function deed.slot(
  p_base int,
  p_key  text,
  p_id   bigint
) returns int
language sql
stable parallel safe
return p_base + case
  when p_key is null then (p_id & 63)::int
  else get_byte(sha256(convert_to(p_key, 'UTF8')), 0) & 63
end;
