-- deed.variant_of: which of a run's variants a contact gets, by the cell that it is in
-- (deed.cells_of gives the first three); null: it is in none of them, and gets the winner, or
-- there are no variants.
create or replace function deed.variant_of(
  p_names   text[],
  p_share   int,
  p_salt    text,
  p_contact uuid
) returns text
language plpgsql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_cell int;
begin
  if p_names is null then
    return null;
  end if;
  v_cell := ('x' || encode(substr(sha256(convert_to(p_salt, 'UTF8') || uuid_send(p_contact)), 1, 4), 'hex'))::bit(32)::bigint % 10000;
  return case when v_cell < p_share then p_names[1 + v_cell * cardinality(p_names) / p_share] end;
end
$$;
