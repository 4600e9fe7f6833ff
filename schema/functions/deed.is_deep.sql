-- deed.is_deep: whether a JSON text has over 1,000 arrays and objects in each
-- other.
--
-- PostgreSQL reads JSON by recursion, so what a publisher's stack had room for
-- may be too deep for a claim inside of other functions. Nothing is read by
-- recursion here. Most texts have fewer brackets than that, or need no more than
-- the innermost pairs taken away a few times; then the levels are added up, run
-- by run.
create or replace function deed.is_deep(
  p_payload bytea
) returns boolean
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_most int := 1000; -- levels
  v_left text;
begin
  if octet_length(p_payload) <= 2 * v_most then
    return false;
  end if;
  v_left := convert_from(p_payload, 'UTF8');
  if length(v_left) - length(replace(replace(v_left, '[', ''), '{', '')) <= v_most then
    return false;
  end if;
  -- Nothing but brackets, of one kind, outside of strings.
  v_left := replace(replace(v_left, e'\\\\', ''), e'\\"', '');
  v_left := regexp_replace(v_left, '(?:"[^"]*"|[^][{}"])+', '', 'g');
  v_left := replace(replace(v_left, '{', '['), '}', ']');
  for i in 1 .. 16 loop
    if length(v_left) <= 2 * v_most then
      return false;
    end if;
    v_left := replace(v_left, '[]', '');
    v_most := v_most - 1;
  end loop;
  return v_most < (
    select max(r.level) from (
      select sum(length(m[1]) - length(m[2])) over (order by n) + length(m[2]) as level
      from regexp_matches(v_left, e'(\\[+)(\\]*)', 'g') with ordinality u(m, n)
    ) r
  );
end
$$;
