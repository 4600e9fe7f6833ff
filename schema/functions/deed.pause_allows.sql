-- deed.pause_allows: how many deliveries of a tenant may be claimed for one of a
-- provider's destinations, or anybody's for the provider (destination ''): null is
-- any number, there is no pause.
--
-- 0 while it is paused, and while a probe is under way. Otherwise 1, which is
-- the probe: its claimer, who holds the pause's row until it commits, says so
-- with deed.name_probes, and takes no other.
create or replace function deed.pause_allows(
  p_provider    text,
  p_destination text,
  p_tenant      uuid
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_tenant uuid := case when p_destination = '' then '00000000-0000-0000-0000-000000000000' else p_tenant end;
begin
  perform from deed.pauses p where p.provider = p_provider and p.destination = p_destination and p.tenant_id = v_tenant;
  if not found then
    return null;
  end if;
  perform from deed.pauses p
  where p.provider = p_provider and p.destination = p_destination and p.tenant_id = v_tenant and p.until <= v_now
    and not exists (
      select from deed.channel_outbox c where c.id = p.probe and c.claim = p.probe_claim and c.lease_until > v_now
    )
  for update skip locked;
  if not found then
    return 0;
  end if;
  -- In a statement of its own: the row is as it is by now, and the probe that another claim
  -- has made of it meanwhile is not seen by who looked before.
  return case when exists (
    select from deed.pauses p
    join deed.channel_outbox c on c.id = p.probe and c.claim = p.probe_claim
    where p.provider = p_provider and p.destination = p_destination and p.tenant_id = v_tenant and c.lease_until > v_now
  ) then 0 else 1 end;
end
$$;
