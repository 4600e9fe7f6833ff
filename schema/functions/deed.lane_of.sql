-- deed.lane_of: the lane of a recipient's deliveries through a provider.
--
-- The recipient's domain if that has a limit of its own or if every domain is
-- a destination of its own, else ''.
create or replace function deed.lane_of(
  p_provider  text,
  p_recipient text
) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when exists (select from deed.providers p where p.name = p_provider and p.lane_per_domain)
      or exists (select from deed.rate_limits r where r.provider = p_provider and r.domain = d.domain)
    then coalesce(d.domain, '') else '' end
  from (select lower(substring(p_recipient from '(?:^[A-Za-z]+://|@)([^@/:?#]+)')) as domain) d
$$;
