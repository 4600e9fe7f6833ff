-- deed.unpunycode: the label that deed.punycode wrote as ASCII; null for what it
-- never writes.
create or replace function deed.unpunycode(
  p_ascii text
) returns text
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  c_digits constant text := 'abcdefghijklmnopqrstuvwxyz0123456789';
  v_basic  int := coalesce(length(substring(p_ascii from '^(.*)-')), 0);
  v_out    text := left(p_ascii, v_basic);
  v_at     int := v_basic + case when strpos(p_ascii, '-') > 0 then 2 else 1 end;
  v_next   bigint := 128;
  v_place  bigint := 0;
  v_bias   int := 72;
  v_before bigint;
  v_weight bigint;
  v_digit  int;
  v_limit  int;
  v_from   int;
  v_count  int;
begin
  if length(p_ascii) > 63 then
    return null;
  end if;
  while v_at <= length(p_ascii) loop
    v_before := v_place;
    v_weight := 1;
    v_from := 36;
    loop
      v_digit := strpos(c_digits, substr(p_ascii, v_at, 1)) - 1;
      if v_digit < 0 or v_at > length(p_ascii) then
        return null;
      end if;
      v_at := v_at + 1;
      v_place := v_place + v_digit * v_weight;
      v_limit := least(greatest(v_from - v_bias, 1), 26);
      exit when v_digit < v_limit;
      v_weight := v_weight * (36 - v_limit);
      v_from := v_from + 36;
      if v_place > 2147483647 or v_weight > 2147483647 then
        return null;
      end if;
    end loop;
    v_count := length(v_out) + 1;
    v_bias := deed.punycode_bias(v_place - v_before, v_count, v_before = 0);
    v_next := v_next + v_place / v_count;
    v_place := v_place % v_count;
    if v_next > 1114111 or v_next between 55296 and 57343 then
      return null;
    end if;
    v_out := left(v_out, v_place::int) || chr(v_next::int) || substr(v_out, v_place::int + 1);
    v_place := v_place + 1;
  end loop;
  return v_out;
end
$$;
