-- deed.members_at: the members of a tenant's audiences who are written to by one of these addresses, each of the channel at
-- its place and as addresses are compared; whoever's they are.
create or replace function deed.members_at(
  p_tenant    uuid,
  p_channels  text[],
  p_addresses text[]
) returns table (audience_id uuid, n bigint, contact_id uuid)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
  select m.audience_id, m.n, m.contact_id
  from unnest(p_channels, p_addresses) u(channel, address)
  join deed.audiences a on a.tenant_id = p_tenant and a.channel = u.channel
  join deed.audience_members m on m.audience_id = a.id and m.address = u.address
$$;
