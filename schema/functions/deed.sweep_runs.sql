-- deed.sweep_runs: skip what is queued of campaigns' runs that are cancelled or have expired,
-- for the last of their members, too, and is in nobody's hand; at most p_limit, of one run. Returns how many.
-- What had begun to be sent when its run expired goes on and ends as any delivery does, dead if it is refused for too long (D6): what was
-- called and counted, is refused for now, or was sent again by a person. A call for which nobody was there is none of these.
create or replace function deed.sweep_runs(
  p_limit  int,
  p_worker text
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_run record;
  v_ids uuid[];
begin
  for v_run in
    select r.id, r.tenant_id, r.provider, case when r.cancelled_at is not null then 'cancelled' else 'expired' end as why
    from deed.campaign_runs r
    where r.finished_at is null and (r.cancelled_at is not null or (r.paused_at is null and r.expires_at <= v_now and not exists (
      select
      from deed.rate_limits b
      cross join lateral jsonb_object_keys(coalesce(r.zones, '{"": 0}')) z
      cross join lateral deed.time_in(r.options, r.created_at, r.scheduled_for, z, v_now) t
      where b.provider = r.provider and b.run_id = r.id
        and t.due + (r.expires_at - coalesce(r.last_due, r.scheduled_for)) + deed.held_up(r.provider, r.id, r.options, z, t.due, v_now) > v_now
    )))
    order by r.id
  loop
    v_ids := array(
      select c.id from deed.channel_outbox c
      where c.due and c.status = 'queued' and c.provider = v_run.provider and c.tenant_id = v_run.tenant_id
        and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = v_run.id and (c.lease_until is null or c.lease_until <= v_now)
        and (v_run.why = 'cancelled' or (c.attempts = 0 and c.deferred_since is null and c.unsettled_since is null))
      limit p_limit
      for update skip locked
    );
    if cardinality(v_ids) = 0 then
      v_ids := array(
        select c.id from deed.channel_outbox c
        where not c.due and c.status = 'queued' and c.provider = v_run.provider and c.tenant_id = v_run.tenant_id and c.run_id = v_run.id
          and (c.lease_until is null or c.lease_until <= v_now)
          and (v_run.why = 'cancelled' or (c.attempts = 0 and c.deferred_since is null and c.unsettled_since is null))
        limit p_limit
        for update skip locked
      );
    end if;
    if cardinality(v_ids) > 0 then
      perform from deed.end_queued(v_ids, 'skipped', array_fill(v_run.why, array[cardinality(v_ids)]), 'sweep', p_worker);
      return cardinality(v_ids);
    end if;
  end loop;
  return 0;
end
$$;
