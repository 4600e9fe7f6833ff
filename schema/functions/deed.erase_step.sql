-- deed.erase_step: go on with erasures, at most p_limit deliveries of the ledger;
-- returns how many were looked at, 0 if there is nothing to do now (D12).
--
-- The ledger is walked once for all erasures that stand at the same place of it, such as all
-- that have not begun, and by one caller at a time. What had been reserved before
-- deed.erase_contact is erased, for the contact by name or for one of its addresses;
-- what came later is not. An erasure waits for transactions that were under way then, and for
-- deliveries that are in somebody's hand, whose places it keeps. Then it has
-- ended: its addresses, which it needed for that, are forgotten, and what is kept of lanes
-- that are theirs alone.
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
  v_first  deed.erasing%rowtype;
  v_all    bigint[]; -- the erasures
  v_of     bigint[]; -- of what was found: whose it is,
  v_found  uuid[];   -- and its id
  v_got    uuid[];   -- and of those, and of what waits, what nobody else has locked
  v_last   uuid;
  v_looked bigint;
  v_one    record;
  v_done   bigint;
  v_left   uuid[];
  v_over   boolean;
begin
  -- xids of another cluster are above all of this one's, or mean nothing here.
  select o.* into v_first
  from deed.erasing o
  where coalesce(o.tried_at < v_now - interval '5 seconds', true)
    and (o.xid < pg_snapshot_xmin(pg_current_snapshot()) or o.xid >= pg_snapshot_xmax(pg_current_snapshot()))
  order by o.n
  limit 1
  for update skip locked;
  if not found then
    return 0;
  end if;
  v_all := array(
    select l.n
    from (
      select o.n
      from deed.erasing o
      where o.reached = v_first.reached and coalesce(o.tried_at < v_now - interval '5 seconds', true)
        and (o.xid < pg_snapshot_xmin(pg_current_snapshot()) or o.xid >= pg_snapshot_xmax(pg_current_snapshot()))
      order by o.n
      limit 10000
      for update skip locked
    ) l
  );
  with page as materialized (
    select c.id, c.tenant_id, c.contact_id, c.created_at, c.erased_at, c.channel, c.cc,
      coalesce(deed.fold_address(c.channel, c.recipient), lower(btrim(c.recipient))) as address
    from deed.channel_outbox c
    where c.id > v_first.reached
    order by c.id
    limit p_limit
  ),
  wanted as (
    select p.id, e.n
    from deed.erasures e
    cross join lateral unnest(e.names) u(contact)
    join page p on p.contact_id = u.contact and p.tenant_id = e.tenant_id
    where e.n = any (v_all) and p.erased_at is null
    union all
    select p.id, e.n
    from deed.erasing o
    join deed.erasures e on e.n = o.n
    cross join lateral unnest(o.channels, o.addresses) a(channel, address)
    join page p on p.address = a.address and p.channel = a.channel and p.tenant_id = e.tenant_id and p.created_at <= e.at
    where o.n = any (v_all) and p.erased_at is null
    union all
    select p.id, e.n
    from page p
    cross join lateral unnest(p.cc) y(address)
    join (
      select o.n, a.address
      from deed.erasing o
      cross join lateral unnest(o.channels, o.addresses) a(channel, address)
      where o.n = any (v_all) and a.channel = 'email'
    ) k on k.address = y.address
    join deed.erasures e on e.n = k.n and e.tenant_id = p.tenant_id and p.created_at <= e.at
    where p.erased_at is null and p.channel = 'email'
  ),
  firsts as ( -- of what is two persons' the first one's
    select w.id, min(w.n) as n from wanted w group by w.id
  )
  select (select array_agg(f.n order by f.id) from firsts f), (select array_agg(f.id order by f.id) from firsts f), (select max(p.id::text)::uuid from page p), (select count(*) from page)
  into v_of, v_found, v_last, v_looked;
  v_over := v_looked < p_limit;

  -- What somebody has locked, such as an operator whose transaction is open, is left for later.
  v_got := array(
    select c.id from deed.channel_outbox c
    where c.id = any (v_found || array(select unnest(o.waiting) from deed.erasing o where o.n = any (v_all)))
    order by c.id
    for update skip locked
  );
  for v_one in
    select o.n, o.waiting, e.actor, array(select f.id from unnest(v_of, v_found) f(n, id) where f.n = o.n) as ids
    from deed.erasing o
    join deed.erasures e on e.n = o.n
    where o.n = any (v_all) and (o.waiting <> '{}' or o.n = any (v_of))
    order by o.n
  loop
    select count(*) filter (where d.did <> 'left'), coalesce(array_agg(d.id) filter (where d.did = 'left'), '{}') into v_done, v_left
    from deed.erase_deliveries(array(select i from unnest(v_one.ids || v_one.waiting) i where i = any (v_got)), v_one.actor) d;
    update deed.erasing o
    set waiting = v_left || array(
      select c.id from deed.channel_outbox c where c.id = any (v_one.ids || v_one.waiting) and c.id <> all (v_got) and c.erased_at is null order by c.id
    )
    where o.n = v_one.n;
    update deed.erasures e set deliveries = e.deliveries + v_done where e.n = v_one.n;
  end loop;

  -- What was being suppressed, or counted as a bounce, when they were erased is there by now.
  if v_over then
    for v_one in
      select e.tenant_id, e.actor, array_agg(a.channel) as channels, array_agg(a.address) as addresses, array_agg(deed.address_mark(e.tenant_id, a.channel, a.address)) as marks
      from deed.erasing o
      join deed.erasures e on e.n = o.n
      cross join lateral unnest(o.channels, o.addresses) a(channel, address)
      where o.n = any (v_all) and o.waiting = '{}' and (
          exists (select from deed.suppressions s where s.tenant_id = e.tenant_id and s.channel = a.channel and s.address = a.address
            and not s.by_consent) -- one by consent is another contact's
          or exists (select from deed.soft_bounces s where s.tenant_id = e.tenant_id and s.channel = a.channel and s.address = a.address)
        )
      group by o.n, e.tenant_id, e.actor
      order by o.n
    loop
      perform deed.mark_suppressions(v_one.tenant_id, v_one.channels, v_one.addresses, v_one.marks, v_one.actor);
      delete from deed.soft_bounces s
      using unnest(v_one.channels, v_one.addresses) a(channel, address)
      where s.tenant_id = v_one.tenant_id and s.channel = a.channel and s.address = a.address;
    end loop;
  end if;

  with gone as (
    delete from deed.erasing o where o.n = any (v_all) and v_over and o.waiting = '{}' returning o.n, o.channels, o.addresses
  ),
  lanes as (
    select e.tenant_id, deed.lane_of('recipient', a.channel, a.address) as lane
    from gone g
    join deed.erasures e on e.n = g.n
    cross join lateral unnest(g.channels, g.addresses) a(channel, address)
  ),
  unlimited as (
    delete from deed.lane_tokens b where b.lane = any (array(select l.lane from lanes l))
  ),
  resumed as (
    delete from deed.pauses p using lanes l where p.destination = l.lane and p.tenant_id = l.tenant_id
  ),
  ended as (
    update deed.erasures e set finished_at = v_now where e.n = any (array(select g.n from gone g))
    returning e.tenant_id, e.contact_id, e.reason, e.deliveries
  )
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
  select e.tenant_id, p_worker, 'erased', 'contact', e.contact_id::text, e.reason, jsonb_build_object('deliveries', e.deliveries)
  from ended e;
  update deed.erasing o
  set reached = coalesce(v_last, o.reached), tried_at = case when v_over then v_now end
  where o.n = any (v_all);
  return greatest(v_looked, 1);
end
$$;
