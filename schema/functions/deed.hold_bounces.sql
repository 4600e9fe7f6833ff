-- deed.hold_bounces: until the transaction ends nobody else counts soft bounces of the addresses of which
-- these events are, nor begins them anew: of two that are the fourth and the fifth each would see four. For
-- deed.apply_events, which has locked p_held.
--
-- It inserts a row for each address and takes it away, so that nobody ever sees one; whoever would insert the same waits,
-- as the index does not know before this has ended whether it stays. All in one order. What was delivered to who has no soft bounce holds nothing.
create or replace function deed.hold_bounces(
  p_held      uuid[],
  p_ids       uuid[],
  p_events    text[],
  p_addresses text[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_ids       uuid[];
  v_addresses text[];
begin
  with held as (
    insert into deed.soft_bounces (delivery_id, tenant_id, channel, address, at)
    select md5(q.tenant_id || ' ' || q.channel)::uuid, q.tenant_id, q.channel, q.address, clock_timestamp()
    from (
      select distinct c.tenant_id, c.channel, a.address
      from unnest(p_ids, p_events, p_addresses) u(id, event, address)
      cross join lateral (select o.tenant_id, o.channel, o.recipient, o.cc from deed.channel_outbox o where o.id = u.id and o.erased_at is null) c
      cross join lateral (select deed.fold_address(c.channel, u.address) as said) w
      cross join lateral (select case when w.said = any (c.cc) then w.said else deed.fold_address(c.channel, c.recipient) end as address) a
      where u.id = any (p_held) and a.address is not null
        and (u.event = 'soft_bounced' or u.event = 'delivered' and exists (
          select from deed.soft_bounces s where s.tenant_id = c.tenant_id and s.channel = c.channel and s.address = a.address
        ))
      order by c.tenant_id, c.channel, a.address
    ) q
    returning delivery_id, address
  )
  select array_agg(h.delivery_id), array_agg(h.address) into v_ids, v_addresses from held h;
  delete from deed.soft_bounces s
  using unnest(v_ids, v_addresses) h(delivery_id, address)
  where s.delivery_id = h.delivery_id and s.address = h.address;
end
$$;
