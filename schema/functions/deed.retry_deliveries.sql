-- deed.retry_deliveries: put failed or dead deliveries back, with their attempts
-- at 0; an operator's act, recorded with who and why.
--
-- They are due from now on, so that they are tried for as long as new ones are
-- (deed.give_up_deliveries), in the lane that they have by now (deed.lane_of). Their key and request stay as they were. What was proved to have been accepted
-- (proved_at) is left alone, and so is what was for somebody who was erased, or brought them a copy. Those of a run are refused (DDCON):
-- a run that has ended stays as it was, and is retried as a new one. Returns
-- how many.
create or replace function deed.retry_deliveries(
  p_ids    uuid[],
  p_reason text,
  p_actor  text
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
  v_run   uuid;
begin
  if coalesce(p_reason, '') = '' or coalesce(p_actor, '') = '' or length(p_actor) > 200 or length(p_reason) > 2000 then
    raise exception 'retry_deliveries: a reason and an actor are needed' using errcode = 'DDARG';
  end if;
  select c.id into v_run from deed.channel_outbox c where c.id = any (p_ids) and c.run_id is not null limit 1;
  if found then
    raise exception 'retry_deliveries: delivery % belongs to a run; retry the run', v_run using errcode = 'DDCON';
  end if;
  perform set_config('deed.act', 'person', true);
  with chosen as (
    select c.id, c.status, case
        when p.lanes is null then c.lane
        else coalesce(deed.lane_of(p.lanes, c.channel, deed.fold_address(c.channel, c.recipient)), '')
      end as lane
    from deed.channel_outbox c
    left join deed.providers p on p.name = c.provider
    where c.id = any (p_ids) and c.status in ('failed', 'dead') and c.proved_at is null and c.erased_at is null
      and not exists (select from deed.contacts o where o.id = c.contact_id and o.erased_at is not null)
      and not deed.is_being_erased(c.tenant_id, c.channel, c.recipient, c.created_at)
      and (c.cc is null or not deed.is_copy_being_erased(c.tenant_id, c.cc, c.created_at))
    order by c.id
    for update of c
  ),
  driven as (
    update deed.channel_outbox c
    set status = 'queued', lane = h.lane, attempts = 0, deferrals = 0, deferred_since = null, process_after = clock_timestamp(), finished_at = null, claim = null, updated_at = clock_timestamp()
    from chosen h
    where c.id = h.id
    returning c.id, c.tenant_id, h.status as was
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    select d.tenant_id, p_actor, 'retry', 'delivery', case when count(*) = 1 then min(d.id::text) end, d.was, 'queued', p_reason, count(*),
      case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(d.id)) end
    from driven d
    group by d.tenant_id, d.was
  )
  select count(*) into v_count from driven;
  perform set_config('deed.act', '', true);
  return v_count;
end
$$;
