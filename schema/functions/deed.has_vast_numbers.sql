-- deed.has_vast_numbers: whether the numbers of a JSON text have over 2^24 digits
-- in all, as PostgreSQL would write them out.
--
-- 81 KB of 1e131071 are over a gigabyte of digits, which no statement can
-- return. Exponents of two digits and more are added up, those in strings too.
create or replace function deed.has_vast_numbers(
  p_payload bytea
) returns boolean
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  c_exponent constant text := e'[0-9][eE][+-]?([0-9]{2,})(?=[\\s,}\\]])';
  v_text text := convert_from(p_payload, 'UTF8');
begin
  return v_text ~ c_exponent and 16777216 < (
    select sum(least(m[1]::numeric, 131072)) from regexp_matches(v_text, c_exponent, 'g') m
  );
end
$$;
