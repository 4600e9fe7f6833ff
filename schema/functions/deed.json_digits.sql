-- deed.json_digits: about how many bytes the numbers of a JSON document have that
-- are written with very many digits. 1e131071 is 8 bytes as text and as stored,
-- and 131,072 as PostgreSQL writes it.
create or replace function deed.json_digits(
  p_json jsonb
) returns bigint
language sql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(sum(case
    when abs(u.n) >= 1e310 then 131072
    when scale(u.n) > 400 then 16384
    when abs(u.n) >= 1e32 or scale(u.n) > 32 then 400
    else 0 end), 0)
  from (select v::numeric as n from jsonb_path_query(p_json, 'strict $.** ? (@.type() == "number")') v) u
$$;
