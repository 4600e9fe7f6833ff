-- deed.idempotency_key: the SHA-256 of the parts of what must be done once (D2).
--
-- Each part is its length in bytes, as 8 bytes big-endian, and its UTF-8. Times
-- are given as RFC 3339 in UTC with microseconds: 2026-01-02T03:04:05.000006Z.
-- Go has the same function, and both the same test vectors. Raises DDARG for a
-- part that is null, and for none at all: such keys would be the same for
-- different things.
create or replace function deed.idempotency_key(
  variadic p_parts text[]
) returns bytea
language plpgsql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_part text;
  v_n    int := 0;
  v_all  bytea := '';
begin
  foreach v_part in array coalesce(p_parts, '{}') loop
    v_n := v_n + 1;
    if v_part is null then
      raise exception 'idempotency_key: part % is null: all keys with a part that is missing would be the same', v_n using errcode = 'DDARG';
    end if;
    v_all := v_all || int8send(octet_length(convert_to(v_part, 'UTF8'))) || convert_to(v_part, 'UTF8');
  end loop;
  if v_n = 0 then
    raise exception 'idempotency_key: there are no parts' using errcode = 'DDARG';
  end if;
  return sha256(v_all);
end
$$;
