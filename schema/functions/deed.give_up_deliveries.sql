-- deed.give_up_deliveries: end as dead what has been due for p_give_up to
-- destinations of a provider that have been paused for its tenant as long: nobody needs to be
-- called for each to find that out. At most p_limit; returns what the log says
-- of them. A provider's own pause ends nothing. Pauses that nothing has come to
-- find out about for an hour are forgotten, and end nothing while the first probe since
-- finds out (deed.pause).
create or replace function deed.give_up_deliveries(
  p_provider text,
  p_give_up  interval,
  p_limit    int,
  p_worker   text
) returns table (id uuid, tenant_id uuid, provider text, channel text, attempts int, correlation_id text, channel_message_id uuid, reason text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := clock_timestamp();
  v_places  tid[];
  v_ids     uuid[];
  v_reasons text[];
begin
  v_places := array(select p.ctid from deed.pauses p where p.provider = p_provider and p.until < v_now - interval '1 hour' for update skip locked);
  -- In a statement of its own: a claim may have made a probe meanwhile.
  delete from deed.pauses p
  where p.ctid = any (v_places)
    and not exists (select from deed.channel_outbox c where c.id = p.probe and c.claim = p.probe_claim and c.lease_until > v_now);
  if not exists (
    select from deed.pauses p
    where p.provider = p_provider and p.destination <> '' and p.since <= v_now - p_give_up and p.until >= v_now - interval '1 hour'
  ) then
    return;
  end if;
  with away as (
    select c.id, p.why from deed.channel_outbox c
    join deed.pauses p on p.provider = p_provider and p.destination <> '' and p.destination = c.lane and p.tenant_id = c.tenant_id and p.since <= v_now - p_give_up
      and p.until >= v_now - interval '1 hour'
    where c.provider = p_provider and c.status = 'queued' and c.due and least(c.ord, c.deferred_since) <= v_now - p_give_up
      and (c.lease_until is null or c.lease_until <= v_now)
    order by c.ord
    limit p_limit
    for update of c skip locked
  )
  select array_agg(a.id), array_agg(format('given up after %s: %s', p_give_up, a.why)) into v_ids, v_reasons from away a;
  return query select * from deed.end_queued(v_ids, 'dead', v_reasons, 'give up', p_worker);
end
$$;
