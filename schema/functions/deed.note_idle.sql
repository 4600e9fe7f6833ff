-- deed.note_idle: whether a provider is registered otherwise than a dispatcher
-- serves it, so that this one calls nobody (deed.attempt); it is kept for three
-- minutes for who looks (deed providers list, deed doctor).
--
-- A dispatcher asks each minute or so. Raises DDARG.
create or replace function deed.note_idle(
  p_worker   text,
  p_provider text,
  p_kind     text,
  p_account  text,
  p_sandbox  boolean
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 or length(p_kind) > 100 or length(p_account) > 300 then
    raise exception 'note_idle: a worker, a type and an account of bounded length are needed' using errcode = 'DDARG';
  end if;
  update deed.providers p
  set idle_worker = p_worker, idle_kind = p_kind, idle_account = p_account, idle_sandbox = p_sandbox,
    idle_until = clock_timestamp() + interval '3 minutes'
  where p.name = p_provider and (p.kind, p.account, p.sandbox) is distinct from (p_kind, p_account, p_sandbox);
  return found;
end
$$;
