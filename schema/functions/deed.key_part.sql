-- deed.key_part: a part of a key as deed.idempotency_key hashes it: its length in bytes, as 8 bytes
-- big-endian, and its UTF-8. Of null it is null, and so is the key.
--
-- Called stable, for convert_to is: else calls are not inlined.
create or replace function deed.key_part(
  p_part text
) returns bytea
language sql
stable parallel safe
return int8send(octet_length(p_part)) || convert_to(p_part, 'UTF8');
