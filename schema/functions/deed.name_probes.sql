-- deed.name_probes: of deliveries that were claimed by one claim, those whose
-- provider or destination is paused are its probes; deed.pause_allows has let
-- one of each through.
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
  where p.provider = p_provider and c.ctid = any (p_places) and p.destination in ('', c.lane)
$$;
