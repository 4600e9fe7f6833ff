-- deed.attend: lease what a stream has put aside and is due now.
--
-- For the holder of lanes, whose slots the parallel arrays name; claims work as
-- deed.claim's do. Up to p_limit messages that are not parked are claimed,
-- oldest first, each with up to p_run messages of its key that stand behind it,
-- in order: head names the message that a row follows. What stands behind may
-- have a lower number, if it has committed late. None is claimed past one that is
-- dead, or that somebody has locked, as to discard it: nobody is waited for. deed.finish and
-- deed.fail record outcomes, and deed.release_keys, in the same transaction,
-- lets what stands behind them go.
--
-- A claim that is taken over is taken over for all that it held of the key and nobody has locked, also
-- for what is not claimed again now: of a run nobody records the end alone. lost_claims
-- is above 0 of what is claimed by the claim that took it over alone, as deed.claim's.
create or replace function deed.attend(
  p_subscription int,
  p_worker       text,
  p_limit        int,
  p_slots_from   int[],
  p_slots_upto   int[],
  p_lease        interval,
  p_run          int default 100
) returns table (
  head bigint, key_hash bigint, id bigint, claim bigint, attempts int, lost_claims int, tenant_id uuid, topic text,
  key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamptz
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_max   int;
  v_heads bigint[];
  v_rows  tid[];
  v_of    bigint[];
  v_lost  int[];
  v_keys  bigint[];
  v_was   bigint[];
  v_over  bigint[]; -- those whose last claim has run out
  v_claim bigint;
  v_count int;
begin
  select s.max_attempts into v_max from deed.subscriptions s where s.id = p_subscription;
  select array_agg(q.id), array_agg(q.ctid), array_agg(case when q.claim is null then q.lost_claims else q.lost_claims + 1 end),
    array_agg(q.key_hash) filter (where q.claim is not null and q.key_hash is not null),
    array_agg(q.claim) filter (where q.claim is not null and q.key_hash is not null),
    array_agg(q.id) filter (where q.claim is not null)
  into v_heads, v_rows, v_lost, v_keys, v_was, v_over
  from (
    select p.id, p.ctid, p.claim, p.lost_claims, p.key_hash
    from deed.pending p
    where p.subscription = p_subscription
      and p.dead_at is null and not p.parked
      and p.ord <= v_now
      and (p.lease_until is null or p.lease_until <= v_now)
      and exists (
        select from unnest(p_slots_from, p_slots_upto) s(lo, hi)
        where p.slot between s.lo and s.hi or (p.slot < 64 and p.slot between s.lo % 64 and s.hi % 64)
      )
    order by p.ord, p.id
    limit p_limit
    for update skip locked
  ) q;
  if v_heads is null then
    return;
  end if;

  if v_keys is not null then
    with freed as (
      update deed.pending p
      set claim = null, claimed_at = null, claimed_by = null, lease_until = null, lost_claims = p.lost_claims + 1
      where p.ctid = any (array(
        select q.ctid
        from unnest(v_keys, v_was) u(key_hash, claim)
        cross join lateral (
          select i.ctid from deed.pending i
          where i.subscription = p_subscription and i.key_hash = u.key_hash and i.claim = u.claim and i.parked
          for update skip locked
        ) q
      ))
      returning p.id
    )
    select v_over || array_agg(f.id) into v_over from freed f;
  end if;

  if 1 < any (v_lost) then
    -- It may be what kills its workers: alone, and dead in the end (O17).
    update deed.pending p
    set dead_at = v_now, lost_claims = u.lost, claim = null, claimed_at = null, claimed_by = null, lease_until = null,
      last_error = format('claim lost %s times: each time the worker died or froze before it could report', u.lost)
    from unnest(v_heads, v_lost) u(id, lost)
    where p.subscription = p_subscription and p.id = u.id and u.lost >= v_max + 10;
    select (array_agg(u.id order by u.n))[1:1], (array_agg(u.place order by u.n))[1:1]
    into v_heads, v_rows
    from unnest(v_heads, v_rows, v_lost) with ordinality u(id, place, lost, n)
    where u.lost > 1 and (u.lost < v_max + 10 or v_max is null);
    if v_heads is null then
      return;
    end if;
    p_run := 0;
  end if;

  v_of := v_heads;
  if p_run > 0 then
    select v_rows || coalesce(array_agg(f.ctid), '{}'), v_of || coalesce(array_agg(h.id), '{}')
    into v_rows, v_of
    from unnest(v_heads) h(id)
    cross join lateral (
      select p.key_hash from deed.pending p where p.subscription = p_subscription and p.id = h.id and p.key_hash is not null
    ) k
    cross join lateral (
      select q.ctid, bool_or(q.ctid is null or q.dead_at is not null) over (order by w.id) as waits
      from (
        select p.id
        from deed.pending p
        where p.subscription = p_subscription and p.key_hash = k.key_hash and p.parked
        order by p.id
        limit p_run
      ) w
      left join lateral (
        select p.ctid, p.dead_at
        from deed.pending p
        where p.subscription = p_subscription and p.id = w.id and p.key_hash = k.key_hash and p.parked
        for update skip locked
      ) q on true
    ) f
    where not f.waits; -- for one that is dead or locked: none is attempted past it
  end if;

  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  v_claim := deed.claim_number();
  return query
  with claimed as (
    update deed.pending p
    set claim = v_claim, claimed_at = v_now, claimed_by = p_worker, lease_until = v_now + p_lease,
      lost_claims = p.lost_claims + case when p.claim is null then 0 else 1 end
    from unnest(v_rows, v_of) u(place, head)
    where p.ctid = u.place -- locked above: they stay where they are
    returning u.head, p.key_hash, p.slot, p.id, p.attempts, case when p.lost_claims > 0 and p.id = any (v_over) then p.lost_claims else 0 end as lost_claims
  )
  select r.head, r.key_hash, r.id, v_claim, r.attempts, r.lost_claims, r.tenant_id, r.topic, r.key, r.type,
    r.content_type, r.headers, r.payload, r.created_at
  from (
    select c.head, c.key_hash, c.attempts, c.lost_claims, l.*,
      count(*) filter (where l.id is null) over (partition by c.head order by c.id <> c.head, c.id) as lacking
    from claimed c
    left join lateral (
      select o.id, o.tenant_id, o.topic, o.key, o.type, o.content_type, o.headers, o.payload, o.created_at
      from deed.log o where o.slot = c.slot and o.id = c.id
      union all -- a key's messages may be in both, and go in one order
      select k.id, k.tenant_id, k.topic, k.key, k.type, k.content_type, k.headers, k.payload, k.created_at
      from deed.kept k where k.slot = c.slot and k.id = c.id
    ) l on true
  ) r
  where r.lacking = 0 -- nor what stands behind one whose content is gone
  order by r.head, r.id <> r.head, r.id;
  get diagnostics v_count = row_count;
  if v_count < cardinality(v_rows) then
    perform deed.end_empty(array[p_subscription], array(
      select p.id from deed.pending p where p.subscription = p_subscription and p.claim = v_claim
    ), v_now, p_worker);
    update deed.pending p
    set claim = null, claimed_at = null, claimed_by = null, lease_until = null
    where p.subscription = p_subscription and p.claim = v_claim and p.parked
      and exists (
        select from deed.pending e
        where e.subscription = p_subscription and e.key_hash = p.key_hash and e.dead_at is not null and (not e.parked or e.id < p.id)
      );
  end if;
end
$$;
