-- deed.expire_deliveries: skip what has expired while it was queued; a claim
-- does so as well, but there is none while a provider is paused. At most
-- p_limit; returns their ids.
create or replace function deed.expire_deliveries(
  p_limit  int,
  p_worker text
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
  return query
  with over as (
    select c.id from deed.channel_outbox c
    where c.status = 'queued' and c.expires_at is not null and c.expires_at <= v_now
      and (c.lease_until is null or c.lease_until <= v_now)
    order by c.expires_at
    limit p_limit
    for update skip locked
  ),
  skipped as (
    update deed.channel_outbox c
    set status = 'skipped', skipped = true, skip_reason = 'expired', finished_at = v_now, updated_at = v_now,
      claim = null, claimed_at = null, claimed_by = null, lease_until = null
    from over o
    where c.id = o.id
    returning c.id, c.tenant_id
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    select s.tenant_id, p_worker, 'expire', 'delivery', case when count(*) = 1 then min(s.id::text) end, 'queued', 'skipped', 'expired', count(*),
      case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(s.id)) end
    from skipped s
    group by s.tenant_id
  )
  select s.id from skipped s;
end
$$;
