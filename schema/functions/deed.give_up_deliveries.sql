-- deed.give_up_deliveries: end as dead what has been due for p_give_up to
-- destinations of a provider that have been paused as long: nobody needs to be
-- called for each to find that out. At most p_limit; returns their ids. A
-- provider's own pause ends nothing. Pauses that nothing has come to find out
-- about for an hour are forgotten.
create or replace function deed.give_up_deliveries(
  p_provider text,
  p_give_up  interval,
  p_limit    int,
  p_worker   text
) returns setof uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  delete from deed.pauses p
  where p.provider = p_provider and p.until < v_now - interval '1 hour'
    and not exists (select from deed.channel_outbox c where c.id = p.probe and c.claim = p.probe_claim and c.lease_until > v_now);
  if not exists (select from deed.pauses p where p.provider = p_provider and p.destination <> '' and p.since <= v_now - p_give_up) then
    return;
  end if;
  return query
  with away as (
    select c.id, p.why from deed.channel_outbox c
    join deed.pauses p on p.provider = p_provider and p.destination <> '' and p.destination = c.lane and p.since <= v_now - p_give_up
    where c.provider = p_provider and c.status = 'queued' and c.due and c.ord <= v_now - p_give_up
      and (c.lease_until is null or c.lease_until <= v_now)
    order by c.ord
    limit p_limit
    for update of c skip locked
  ),
  ended as (
    update deed.channel_outbox c
    set status = 'dead', finished_at = v_now, updated_at = v_now,
      last_error = left(format('given up after %s: %s', p_give_up, a.why), 4000),
      claim = null, claimed_at = null, claimed_by = null, lease_until = null
    from away a
    where c.id = a.id
    returning c.id, c.tenant_id, c.last_error
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    select e.tenant_id, p_worker, 'give up', 'delivery', case when count(*) = 1 then min(e.id::text) end, 'queued', 'dead', left(min(e.last_error), 2000), count(*),
      case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(e.id)) end
    from ended e
    group by e.tenant_id
  )
  select e.id from ended e;
end
$$;
