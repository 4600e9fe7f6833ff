-- deed.expire_deliveries: skip what has expired while it was queued; a claim
-- does so as well, but there is none while a provider is paused. At most
-- p_limit; returns what the log says of them.
create or replace function deed.expire_deliveries(
  p_limit  int,
  p_worker text
) returns table (id uuid, tenant_id uuid, provider text, channel text, attempts int, correlation_id text, channel_message_id uuid, reason text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_ids uuid[];
begin
  v_ids := array(
    select c.id from deed.channel_outbox c
    where c.status = 'queued' and c.expires_at is not null and c.expires_at <= v_now
      and (c.lease_until is null or c.lease_until <= v_now)
    order by c.expires_at
    limit p_limit
    for update skip locked
  );
  return query select * from deed.end_queued(v_ids, 'skipped', array_fill('expired'::text, array[cardinality(v_ids)]), 'expire', p_worker);
end
$$;
