-- deed.match_events: as deed.match_late_events, for programs of before that, which tell nobody of what was
-- proved. Returns how many were looked at.
create or replace function deed.match_events(
  p_limit int,
  p_actor text
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select m.looked from deed.match_late_events(p_limit, p_actor) m);
end
$$;
