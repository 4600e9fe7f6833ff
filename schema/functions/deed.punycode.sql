-- deed.punycode: a label's letters as ASCII, without the prefix xn-- (RFC 3492).
-- Null where there are too many of them for a label of a domain.
create or replace function deed.punycode(
  p_label text
) returns text
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  c_digits constant text := 'abcdefghijklmnopqrstuvwxyz0123456789';
  v_all    bigint[] := array(select ascii(c) from string_to_table(p_label, null) c);
  v_out    text := regexp_replace(p_label, e'[^\\x01-\\x7f]', '', 'g');
  v_done   int := length(v_out);
  v_basic  int := v_done;
  v_next   bigint := 128;
  v_least  bigint;
  v_delta  bigint := 0;
  v_bias   int := 72;
  v_point  bigint;
  v_rest   bigint;
  v_at     int;
  v_limit  int;
begin
  if length(p_label) > 63 then
    return null;
  end if;
  if v_basic > 0 then
    v_out := v_out || '-';
  end if;
  while v_done < cardinality(v_all) loop
    v_least := (select min(u) from unnest(v_all) u where u >= v_next);
    v_delta := v_delta + (v_least - v_next) * (v_done + 1);
    v_next := v_least;
    foreach v_point in array v_all loop
      if v_point < v_next then
        v_delta := v_delta + 1;
      elsif v_point = v_next then
        v_rest := v_delta;
        v_at := 36;
        loop
          v_limit := least(greatest(v_at - v_bias, 1), 26);
          exit when v_rest < v_limit;
          v_out := v_out || substr(c_digits, (v_limit + (v_rest - v_limit) % (36 - v_limit) + 1)::int, 1);
          v_rest := (v_rest - v_limit) / (36 - v_limit);
          v_at := v_at + 36;
        end loop;
        v_out := v_out || substr(c_digits, (v_rest + 1)::int, 1);
        v_bias := deed.punycode_bias(v_delta, v_done + 1, v_done = v_basic);
        v_delta := 0;
        v_done := v_done + 1;
      end if;
    end loop;
    v_delta := v_delta + 1;
    v_next := v_next + 1;
  end loop;
  return v_out;
end
$$;
