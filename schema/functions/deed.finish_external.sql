-- deed.finish_external: a step of kind external is done. p_output is what later steps see of it, at most 16 KiB of JSON.
--
-- recorded; repeated, for an end that this claim has recorded before, so that who has not heard the answer may ask again; or
-- lost, for which nothing is recorded: the lease has run out and somebody else has it, or the run has ended. Whoever keeps
-- the run locked makes it 55P03 after 200 ms: ask again. Raises DDARG.
create or replace function deed.finish_external(
  p_run    uuid,
  p_step   text,
  p_claim  bigint,
  p_output jsonb default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if octet_length(p_output::text) > 16384 then
    raise exception 'finish_external: the output has % bytes; at most 16384 are possible: keep it elsewhere, and say where', octet_length(p_output::text) using errcode = 'DDARG';
  end if;
  return deed.end_external(p_run, p_step, p_claim, 'completed', case when p_output is null or p_output = 'null' then '{}' else jsonb_build_object('output', p_output) end);
end
$$;
