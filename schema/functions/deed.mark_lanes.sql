-- deed.mark_lanes: look through what a provider has due of a tenant's runs, from the beginning, and say where in each lane
-- it begins, for claims that then need not step over what was sent: the index keeps that under an old snapshot, in front of what is due.
--
-- runs has of each run its lanes that have something due, and of each the time and the id of its first delivery,
-- whoever has claimed that; of a run that is open and has nothing due no lanes. Null instead of lanes: it is not told, of runs in p_held. upto is the last
-- run that was looked for: claims look themselves for what is behind it, as for what belongs to no run; it is less than the last one there is where all runs together
-- would have more than p_most lanes. at is when, and cost how many seconds it took.
--
-- Nothing due stood before a mark when it was made, by what had committed. What comes to stand there later, such as what goes
-- back to queued at its old time, or was committed late, is found by the next look.
create or replace function deed.mark_lanes(
  p_provider text,
  p_tenant   uuid,
  p_held     uuid[],
  p_most     int
) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_upto  uuid := (select r.id from deed.campaign_runs r order by r.id desc limit 1);
  v_whole uuid := '00000000-0000-0000-0000-000000000000'; -- the last run that was looked through
  v_run   uuid := v_whole;
  v_lane  text; -- null: the run is done with
  v_now   uuid;
  v_at    timestamptz;
  v_id    uuid;
  v_n     int := 0;
  v_lanes jsonb := '{}';
  v_runs  jsonb := '{}';
begin
  loop
    v_now := null;
    if v_lane is not null then
      select c.lane, c.ord, c.id into v_lane, v_at, v_id
      from deed.channel_outbox c
      where c.due and c.status = 'queued' and c.provider = p_provider and c.tenant_id = p_tenant
        and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = v_run and c.lane > v_lane
      order by c.lane, c.ord, c.id
      limit 1;
      if not found then
        v_runs := v_runs || jsonb_build_object(v_run::text, v_lanes);
        v_lane := null;
      end if;
    end if;
    if v_lane is null then
      v_whole := v_run;
      select c.run_id, c.lane, c.ord, c.id into v_now, v_lane, v_at, v_id
      from deed.channel_outbox c
      where c.due and c.status = 'queued' and c.provider = p_provider and c.tenant_id = p_tenant
        and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) > v_run
      order by coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid), c.lane, c.ord, c.id
      limit 1;
      if v_now is null then
        v_upto := greatest(v_upto, v_whole);
        exit;
      end if;
      v_run := v_now;
      v_lanes := '{}';
      if v_run = any (p_held) then
        v_runs := v_runs || jsonb_build_object(v_run::text, null);
        v_lane := null;
        continue;
      end if;
    end if;
    v_n := v_n + 1;
    if v_n > p_most then
      v_upto := v_whole; -- claims look from there on
      exit;
    end if;
    v_lanes := v_lanes || jsonb_build_object(v_lane, jsonb_build_array(v_at, v_id));
  end loop;
  select coalesce(jsonb_object_agg(r.id, jsonb '{}'), '{}') || v_runs into v_runs
  from (select o.id from deed.campaign_runs o where o.finished_at is null and o.tenant_id = p_tenant order by o.id desc limit 100) r
  where r.id <= v_upto and exists (select from deed.job_queue j where j.run_id = r.id and j.expanded_at is not null);
  return jsonb_build_object('at', extract(epoch from v_began), 'cost', extract(epoch from clock_timestamp() - v_began), 'lanes', v_n,
    'upto', v_upto, 'runs', v_runs);
end
$$;
