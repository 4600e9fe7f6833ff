-- deed.name_probes: of deliveries that were claimed by one claim, those whose
-- provider is paused, or for whose tenant their destination is, are its probes;
-- deed.pause_allows has let one of each through. A pause that has begun since it was asked
-- gets none, and what another claim has under way stays the probe.
create or replace function deed.name_probes(
  p_provider text,
  p_places   tid[],
  p_claim    bigint
) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  update deed.pauses p
  set probe = c.id, probe_claim = p_claim
  from deed.channel_outbox c
  cross join lateral (values ('', '00000000-0000-0000-0000-000000000000'::uuid), (c.lane, c.tenant_id)) d(destination, tenant_id)
  where c.ctid = any (p_places) and p.provider = p_provider and p.destination = d.destination and p.tenant_id = d.tenant_id
    and p.until <= clock_timestamp()
    and not exists (select from deed.channel_outbox o where o.id = p.probe and o.claim = p.probe_claim and o.lease_until > clock_timestamp())
$$;
