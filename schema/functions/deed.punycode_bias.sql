-- deed.punycode_bias: how the next letter's distance is written (RFC 3492, 6.1).
create or replace function deed.punycode_bias(
  p_delta bigint,
  p_count int,
  p_first boolean
) returns int
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_delta bigint := case when p_first then p_delta / 700 else p_delta / 2 end;
  v_bias  int := 0;
begin
  v_delta := v_delta + v_delta / p_count;
  while v_delta > 455 loop
    v_delta := v_delta / 35;
    v_bias := v_bias + 36;
  end loop;
  return v_bias + 36 * v_delta / (v_delta + 38);
end
$$;
