-- deed.refuse_members: the trigger that lets nobody into an audience that is ready. Raises
-- DDCON.
create or replace function deed.refuse_members() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id uuid;
begin
  select a.id into v_id
  from (select distinct m.audience_id from made m) m
  join deed.audiences a on a.id = m.audience_id
  where a.status <> 'loading'
  limit 1;
  if found then
    raise exception 'audience %: it is ready or being removed, and cannot be changed', v_id using errcode = 'DDCON';
  end if;
  return null;
end
$$;
