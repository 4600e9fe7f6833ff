-- deed.take_probe: whether a delivery may be called under a claim that is being
-- made, as far as pauses go: neither its provider nor, for its tenant, its lane is
-- paused, or the pause is over, no probe is under way, and this one is now the
-- probe.
create or replace function deed.take_probe(
  p_provider text,
  p_tenant   uuid,
  p_lane     text,
  p_id       uuid,
  p_claim    bigint
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_place  text;
  v_tenant uuid;
  v_most   int;
begin
  foreach v_place in array array['', p_lane] loop
    v_tenant := case when v_place = '' then '00000000-0000-0000-0000-000000000000' else p_tenant end;
    v_most := deed.pause_allows(p_provider, v_place, v_tenant);
    if v_most = 0 then
      return false;
    end if;
    update deed.pauses p set probe = p_id, probe_claim = p_claim
    where v_most = 1 and p.provider = p_provider and p.destination = v_place and p.tenant_id = v_tenant
      and (p.probe_claim is distinct from p_claim or p.probe = p_id); -- else this claim has its probe
    if v_most = 1 and not found then
      return false;
    end if;
    exit when p_lane = '';
  end loop;
  return true;
end
$$;
