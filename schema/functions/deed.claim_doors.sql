-- deed.claim_doors: claim for the published faces, across topics.
--
-- What deed.claim does for one subscription, for all that are doors at once:
-- oldest first, for five minutes, SKIP LOCKED. A message that could not be sent
-- to the claimer (deed.json_excess) is dead, instead of failing every claim.
-- What a claimer whose name is a UUID takes is kept in deed.door_claims, by which
-- it finds its own. Raises DDARG.
create or replace function deed.claim_doors(
  p_worker text,
  p_limit  int,
  p_tenant uuid
) returns table (
  id bigint, attempts int, tenant_id uuid, topic text, key text, aggregate_type text, content_type text, payload bytea,
  created_at timestamptz
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_doors int[] := deed.doors();
  v_gone  uuid[] := array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null);
  v_ids   bigint[] := '{}';
  v_rows  tid[] := '{}';
  v_lost  int[] := '{}';
  v_more  record;
  v_cut   record;
  v_found int;
  v_ord   timestamptz := '-infinity';
  v_id    bigint := 0;
  v_token uuid := case when p_worker ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' then p_worker::uuid end;
begin
  if p_limit is null or p_limit < 0 then
    raise exception 'claim: limit must not be negative, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  end if;
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim: the claimer must be named, with at most 200 characters' using errcode = 'DDARG';
  end if;

  perform deed.note_asking(v_doors);

  if cardinality(v_doors) = 1 then
    select array_agg(q.id), array_agg(q.ctid), array_agg(case when q.claim is null then 0 else q.lost_claims + 1 end)
    into v_ids, v_rows, v_lost
    from (
      select p.id, p.ctid, p.claim, p.lost_claims
      from deed.pending p
      where p.subscription = v_doors[1]
        and p.dead_at is null and not p.parked
        and p.ord <= v_now
        and (p.lease_until is null or p.lease_until <= v_now)
        and (p_tenant is null or p.tenant_id = p_tenant) and p.tenant_id <> all (v_gone)
      order by p.ord, p.id
      limit p_limit
      for update skip locked
    ) q;
  else
    -- Several: first, without locks, up to where the oldest reach; then what is
    -- there and nobody else's. So nothing is locked that is not returned, and who
    -- comes second goes on behind the first.
    loop
      select count(*) as n, max(u.ord) as ord, max(u.id) filter (where u.last_ord = u.ord) as id into v_cut
      from (
        select q.ord, q.id, max(q.ord) over () as last_ord
        from (
          select c.ord, c.id
          from unnest(v_doors) d(id)
          cross join lateral (
            select p.ord, p.id
            from deed.pending p
            where p.subscription = d.id
              and p.dead_at is null and not p.parked
              and (p.ord, p.id) > (v_ord, v_id) and p.ord <= v_now
              and (p.lease_until is null or p.lease_until <= v_now)
              and (p_tenant is null or p.tenant_id = p_tenant) and p.tenant_id <> all (v_gone)
            order by p.ord, p.id
            limit p_limit - cardinality(v_ids)
          ) c
          order by c.ord, c.id
          limit p_limit - cardinality(v_ids)
        ) q
      ) u;
      exit when v_cut.n = 0;
      select array_agg(q.id order by q.ord, q.id) as ids, array_agg(q.ctid order by q.ord, q.id) as places,
        array_agg(case when q.claim is null then 0 else q.lost_claims + 1 end order by q.ord, q.id) as lost
      into v_more
      from (
        select c.*
        from unnest(v_doors) d(id)
        cross join lateral (
          select p.ord, p.id, p.ctid, p.claim, p.lost_claims
          from deed.pending p
          where p.subscription = d.id
            and p.dead_at is null and not p.parked
            and (p.ord, p.id) > (v_ord, v_id) and (p.ord, p.id) <= (v_cut.ord, v_cut.id)
            and (p.lease_until is null or p.lease_until <= v_now)
            and (p_tenant is null or p.tenant_id = p_tenant) and p.tenant_id <> all (v_gone)
          order by p.ord, p.id
          limit p_limit - cardinality(v_ids)
          for update skip locked
        ) c
        order by c.ord, c.id
        limit p_limit - cardinality(v_ids)
      ) q;
      v_ids := v_ids || v_more.ids;
      v_rows := v_rows || v_more.places;
      v_lost := v_lost || v_more.lost;
      exit when cardinality(v_ids) >= p_limit;
      v_ord := v_cut.ord;
      v_id := v_cut.id;
    end loop;
  end if;
  if coalesce(cardinality(v_ids), 0) = 0 then
    return;
  end if;

  -- A message that kills its worker is claimed alone, and dies (O17).
  if 1 < any (v_lost) then
    with spent as (
      update deed.pending p
      set dead_at = v_now, lost_claims = u.lost, claim = null, claimed_at = null, claimed_by = null, lease_until = null,
        last_error = format('claim lost %s times: each time the worker died or froze before it could report', u.lost)
      from unnest(v_rows, v_lost) u(place, lost)
      cross join deed.subscriptions s
      where p.ctid = u.place and s.id = p.subscription and u.lost >= s.max_attempts + 10
      returning p.id
    ),
    living as (
      select u.place, u.lost, u.n
      from unnest(v_ids, v_rows, v_lost) with ordinality u(id, place, lost, n)
      where u.id not in (select s.id from spent s)
    )
    select case when (array_agg(l.lost order by l.n))[1] > 1
        then (array_agg(l.place order by l.n))[1:1]
        else array_agg(l.place order by l.n) filter (where l.lost < 2) end
    into v_rows
    from living l;
    if v_rows is null then
      return;
    end if;
  end if;

  if v_token is not null
    and (select c.claimed_at from deed.door_claims c order by c.claim limit 1) < v_now - interval '5 minutes' then
    -- Leases that are over; what is still claimed under them is shown as others'.
    delete from deed.door_claims d
    where d.ctid = any (array(
      select o.ctid
      from (select c.ctid as place from deed.door_claims c order by c.claim limit 200) u
      join deed.door_claims o on o.ctid = u.place
      where o.claimed_at < v_now - interval '5 minutes'
      for update of o skip locked
    ));
  end if;
  -- As in deed.claim: what is handed out must have been flushed.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  return query
  with claimed as (
    update deed.pending p
    set claimed_at = v_now, lease_until = v_now + interval '5 minutes', claim = c.claim, claimed_by = p_worker,
      lost_claims = p.lost_claims + case when p.claim is null then 0 else 1 end
    from (select deed.claim_number() as claim) c
    where p.ctid = any (v_rows) -- locked above: they stay where they are
    returning p.slot, p.id, p.attempts, p.claim, p.tenant_id
  ),
  kept as (
    insert into deed.door_claims (claim, tenant_id, token, claimed_at, ids)
    select c.claim, c.tenant_id, v_token, v_now, array_agg(c.id) from claimed c where v_token is not null group by c.claim, c.tenant_id
  )
  select l.id, c.attempts, l.tenant_id, l.topic, l.key, l.aggregate_type, l.content_type, l.payload, l.created_at
  from claimed c
  cross join lateral (
    select o.id, o.tenant_id, o.topic, o.key, o.aggregate_type, o.content_type, o.payload, o.created_at
    from deed.log o where o.slot = c.slot and o.id = c.id
    union all -- as in deed.claim
    select k.id, k.tenant_id, k.topic, k.key, k.aggregate_type, k.content_type, k.payload, k.created_at
    from deed.kept k
    where k.slot = c.slot and k.id = c.id
      and (select exists (select from deed.partitions p where p.read_window is not null and p.n >= (select min(i.id) from unnest(v_ids) i(id)) / 68719476736))
  ) l
  where octet_length(l.payload) <= 1024 or not deed.is_json(l.content_type) or deed.json_excess(l.payload) is null;
  get diagnostics v_found = row_count;
  if v_found < cardinality(v_rows) then
    -- What was left out.
    with excessive as (
      select p.subscription, p.id, deed.json_excess(l.payload) as excess
      from unnest(v_doors) d(id)
      cross join unnest(v_ids) u(id)
      join deed.pending p on p.subscription = d.id and p.id = u.id and p.claimed_at = v_now and p.claimed_by = p_worker
      cross join lateral (
        select o.content_type, o.payload from deed.log o where o.slot = p.slot and o.id = p.id
        union all
        select k.content_type, k.payload from deed.kept k where k.slot = p.slot and k.id = p.id
      ) l
      where octet_length(l.payload) > 1024 and deed.is_json(l.content_type)
    )
    update deed.pending p
    set dead_at = v_now, attempts = p.attempts + 1, claim = null, claimed_at = null, claimed_by = null, lease_until = null,
      last_error = format('it has %s, which cannot be shown through a face; deed.claim returns the bytes', e.excess)
    from excessive e
    where p.subscription = e.subscription and p.id = e.id and e.excess is not null;
    perform deed.end_empty(v_doors, v_ids, v_now, p_worker);
  end if;
end
$$;
