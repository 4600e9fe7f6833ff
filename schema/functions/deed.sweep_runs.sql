-- deed.sweep_runs: skip what is queued of campaigns' runs that are cancelled or have expired,
-- for the last of their members, too, and is in nobody's hand; at most p_limit. Returns how many.
-- A large run delays no other: each tenant has an equal share of p_limit and each of its runs an equal share of that, what some leave
-- goes to those that have more, and turns are drawn by lot, since of more runs than p_limit the same ones would be first each time.
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
  v_now  timestamptz := clock_timestamp();
  v_left int := p_limit;
  v_open uuid[];
  v_more uuid[];
  v_run  record;
  v_ids  uuid[];
  v_all  uuid[];
  v_why  text[];
begin
  v_open := array(
    select r.id
    from deed.campaign_runs r
    where r.finished_at is null and (r.cancelled_at is not null or (r.paused_at is null and r.expires_at <= v_now and not exists (
      select
      from deed.rate_limits b
      cross join lateral jsonb_object_keys(coalesce(r.zones, '{"": 0}')) z
      cross join lateral deed.time_in(r.options, r.created_at, r.scheduled_for, z, v_now) t
      where b.provider = r.provider and b.run_id = r.id
        and t.due + (r.expires_at - coalesce(r.last_due, r.scheduled_for)) + deed.held_up(r.provider, r.id, r.options, z, t.due, v_now) > v_now
    )))
  );
  while v_left > 0 and cardinality(v_open) > 0 loop
    v_all := '{}';
    v_why := '{}';
    v_more := '{}';
    for v_run in
      select o.id, o.tenant_id, o.provider, o.why, ceil(v_left::float8 / count(*) filter (where o.turn = 1) over () / o.runs)::int as share
      from (
        select r.id, r.tenant_id, r.provider, case when r.cancelled_at is not null then 'cancelled' else 'expired' end as why,
          row_number() over (partition by r.tenant_id order by random()) as turn, count(*) over (partition by r.tenant_id) as runs
        from deed.campaign_runs r
        where r.id = any(v_open)
      ) o
      order by o.turn, random()
    loop
      v_run.share := least(v_run.share, v_left - cardinality(v_all));
      v_ids := array(
        select c.id from deed.channel_outbox c
        where c.due and c.status = 'queued' and c.provider = v_run.provider and c.tenant_id = v_run.tenant_id
          and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = v_run.id and (c.lease_until is null or c.lease_until <= v_now)
          and (v_run.why = 'cancelled' or (c.attempts = 0 and c.deferred_since is null and c.unsettled_since is null))
        limit v_run.share
        for update skip locked
      );
      if cardinality(v_ids) = 0 then
        v_ids := array(
          select c.id from deed.channel_outbox c
          where not c.due and c.status = 'queued' and c.provider = v_run.provider and c.tenant_id = v_run.tenant_id and c.run_id = v_run.id
            and (c.lease_until is null or c.lease_until <= v_now)
            and (v_run.why = 'cancelled' or (c.attempts = 0 and c.deferred_since is null and c.unsettled_since is null))
          limit v_run.share
          for update skip locked
        );
      end if;
      v_all := v_all || v_ids;
      v_why := v_why || array_fill(v_run.why, array[cardinality(v_ids)]);
      if cardinality(v_ids) = v_run.share then
        v_more := v_more || v_run.id;
      end if;
      -- What finds little in many rows, as what is scheduled of one run among others', takes no more of the statement's time than this.
      exit when cardinality(v_all) = v_left or cardinality(v_all) > 0 and clock_timestamp() > v_now + interval '1 second';
    end loop;
    perform from deed.end_queued(v_all, 'skipped', v_why, 'sweep', p_worker);
    v_left := v_left - cardinality(v_all);
    v_open := v_more;
    exit when clock_timestamp() > v_now + interval '1 second';
  end loop;
  return p_limit - v_left;
end
$$;
