-- deed.cells_of: how a campaign's run with these options, of this request, divides its
-- audience: the names of its variants, in order (null: it has none), how many of 10,000 cells
-- are divided among them, and what is hashed with a contact to know its cell
-- (deed.variant_of). The rest of the cells gets the winner. It follows from the request, so that the
-- same one makes the same cells; a run that retries another one has that one's.
create or replace function deed.cells_of(
  in  p_options jsonb,
  in  p_request text,
  out names     text[],
  out share     int,
  out salt      text
)
language plpgsql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_options ? 'variants' then
    names := array(select k from jsonb_object_keys(p_options -> 'variants') k order by k collate "C");
    share := coalesce(round((p_options #>> '{test,share}')::numeric * 10000), 10000);
    salt := coalesce(p_options ->> 'cells', p_request);
  end if;
end
$$;
