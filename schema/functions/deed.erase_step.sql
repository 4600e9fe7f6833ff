-- deed.erase_step: go on with an erasure, at most p_limit deliveries of the ledger;
-- returns how many were looked at, 0 if there is nothing to do now (D12).
--
-- One erasure after the other, and one caller at a time. What had been reserved before
-- deed.erase_contact is erased, for the contact by name or for one of its addresses;
-- what came later is not. It waits for transactions that were under way then, and for
-- deliveries that are in somebody's hand, whose places it keeps. Then the erasure has
-- ended: its addresses, which it needed for that, are forgotten.
create or replace function deed.erase_step(
  p_limit  int,
  p_worker text
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_o      deed.erasing%rowtype;
  v_e      deed.erasures%rowtype;
  v_ids    uuid[];
  v_last   uuid;
  v_looked bigint;
  v_done   bigint;
  v_left   uuid[];
begin
  -- xids of another cluster are above all of this one's, or mean nothing here.
  select o.* into v_o
  from deed.erasing o
  where coalesce(o.tried_at < v_now - interval '5 seconds', true)
    and (o.xid < pg_snapshot_xmin(pg_current_snapshot()) or o.xid >= pg_snapshot_xmax(pg_current_snapshot()))
  order by o.n
  limit 1
  for update skip locked;
  if not found then
    return 0;
  end if;
  select e.* into v_e from deed.erasures e where e.n = v_o.n;
  select coalesce(array_agg(l.id) filter (where l.wanted), '{}'), (array_agg(l.id order by l.id desc))[1], count(*) into v_ids, v_last, v_looked
  from (
    select c.id, c.tenant_id = v_e.tenant_id and c.erased_at is null and (
        c.contact_id = any (v_e.names)
        or c.created_at <= v_e.at and exists (
          select from unnest(v_o.channels, v_o.addresses) a(channel, address)
          where a.channel = c.channel and (a.address = coalesce(deed.fold_address(c.channel, c.recipient), lower(btrim(c.recipient))) or a.address = any (c.cc))
        )
      ) as wanted
    from deed.channel_outbox c
    where c.id > v_o.reached
    order by c.id
    limit p_limit
  ) l;
  select count(*) filter (where d.did <> 'left'), coalesce(array_agg(d.id) filter (where d.did = 'left'), '{}') into v_done, v_left
  from deed.erase_deliveries(v_ids || v_o.waiting, v_e.actor) d;
  if v_looked < p_limit and v_left = '{}' then
    delete from deed.erasing o where o.n = v_o.n;
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
    values (v_e.tenant_id, p_worker, 'erased', 'contact', v_e.contact_id::text, v_e.reason, jsonb_build_object('deliveries', v_e.deliveries + v_done));
  else
    update deed.erasing o
    set reached = coalesce(v_last, o.reached), waiting = v_left, tried_at = case when v_looked < p_limit then v_now end
    where o.n = v_o.n;
  end if;
  update deed.erasures e
  set deliveries = e.deliveries + v_done, finished_at = case when v_looked < p_limit and v_left = '{}' then v_now end
  where e.n = v_o.n;
  return greatest(v_looked, 1);
end
$$;
