-- deed.lane_of: the lane of a domain's deliveries through a provider.
--
-- The domain if that has a limit of its own or if every domain is
-- a destination of its own, else ''.
create or replace function deed.lane_of(
  p_provider text,
  p_domain   text
) returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when exists (select from deed.providers p where p.name = p_provider and p.lane_per_domain)
      or exists (select from deed.rate_limits r where r.provider = p_provider and r.domain = p_domain)
    then coalesce(p_domain, '') else '' end
$$;
