-- deed.is_zone: whether a text is the name of a time zone, such as Europe/Berlin or
-- UTC. An offset is none: it does not know when summer is.
create or replace function deed.is_zone(p_zone text) returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_zone !~ e'^([A-Za-z_]+(/[A-Za-z_-]+){1,2}|UTC|Etc/GMT[+-][0-9]{1,2})$' then
    return false;
  end if;
  perform timezone(p_zone, clock_timestamp());
  return true;
exception when invalid_parameter_value then
  return false;
end
$$;
