-- deed.claim: lease up to p_limit messages of one subscription to one worker.
--
-- Oldest first, only what is due, unfinished and unclaimed or whose lease has
-- run out (O6). Rows that another claimer holds are skipped, so callers never
-- wait for each other. p_topic null or '': the default subscription, which
-- takes the topics that nobody declared. p_tenant null: all tenants (O10); never one
-- that is being removed.
-- p_lease null: the subscription's. p_floor is a hint: rows whose due time is
-- below it are left out, so that a worker that has just claimed up to there
-- does not step over the index entries of what it has finished.
--
-- claim is the fencing token of all returned rows: extend, finish and fail act
-- only on rows that still carry it. lost_claims above 0 says that this claim
-- took over one that had run out (O14), and is how many have, ever; from the second
-- on a message is claimed alone, and after max_attempts + 10 it is dead (O17).
-- A message whose content is gone is dead then, with that as its error.
-- Raises DDARG for a limit below 0 or a lease out of range, DDNFD for an
-- unknown subscription, DDMOD for a stream's.
create or replace function deed.claim(
  p_topic        text,
  p_worker       text,
  p_limit        int default 100,
  p_subscription text default 'default',
  p_tenant       uuid default null,
  p_lease        interval default null,
  p_floor        timestamptz default '-infinity'
) returns table (
  subscription int, id bigint, message_id uuid, claim bigint, attempts int, lost_claims int,
  tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, payload bytea,
  created_at timestamptz, ord timestamptz
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
  v_sub   record;
  v_ids   bigint[];
  v_rows  tid[];
  v_lost  int[];
  v_over  bigint[]; -- those whose last claim has run out
  v_claim bigint;
  v_found int;
begin
  if p_limit is null or p_limit < 0 then
    raise exception 'claim: limit must not be negative, got %', coalesce(p_limit::text, 'null') using errcode = 'DDARG';
  end if;
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim: worker must have 1 to 200 characters' using errcode = 'DDARG';
  end if;
  if p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'claim: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;
  select s.id, coalesce(p_lease, s.lease) as lease, s.max_attempts, s.since,
    array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null) as removed
  into v_sub
  from deed.subscriptions s
  where s.topic = coalesce(p_topic, '') and s.name = p_subscription;
  if not found then
    raise exception 'claim: topic % has no subscription %', quote_literal(coalesce(p_topic, '')), quote_literal(coalesce(p_subscription, ''))
      using errcode = 'DDNFD', hint = 'A topic that nobody declared is drained through p_topic => null.';
  end if;

  if v_sub.since is not null then
    raise exception 'claim: topic % is a stream, which deed''s own relay reads in order', quote_literal(p_topic)
      using errcode = 'DDMOD', hint = format('To claim its messages one by one: deed topic set %s --mode queue', p_topic);
  end if;

  perform deed.note_asking(array[v_sub.id]);

  -- No plan here may depend on statistics: those of a drained table say that a
  -- subscription has one row. Hence no sort, and the rows by their place.
  select array_agg(q.id), array_agg(q.ctid), array_agg(case when q.claim is null then 0 else q.lost_claims + 1 end)
  into v_ids, v_rows, v_lost
  from (
    select p.id, p.ctid, p.claim, p.lost_claims
    from deed.pending p
    where p.subscription = v_sub.id
      and p.dead_at is null and not p.parked
      and p.ord >= p_floor and p.ord <= v_now
      and (p.lease_until is null or p.lease_until <= v_now)
      and (p_tenant is null or p.tenant_id = p_tenant) and p.tenant_id <> all (v_sub.removed)
    order by p.ord, p.id
    limit p_limit
    for update skip locked
  ) q;
  if v_ids is null then
    return;
  end if;

  if 0 < any (v_lost) then
    v_over := array(select u.id from unnest(v_ids, v_lost) u(id, lost) where u.lost > 0);
  end if;
  if 1 < any (v_lost) then
    with spent as (
      update deed.pending p
      set dead_at = v_now, lost_claims = u.lost, claim = null, claimed_at = null, claimed_by = null, lease_until = null,
        last_error = format('claim lost %s times: each time the worker died or froze before it could report', u.lost)
      from unnest(v_ids, v_lost) u(id, lost)
      where p.subscription = v_sub.id and p.id = u.id and u.lost >= v_sub.max_attempts + 10
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

  -- What is handed out must have been flushed: otherwise a message that a
  -- crash takes back has been delivered (the window protocol's rule 12).
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  v_claim := deed.claim_number();

  return query
  with claimed as (
    update deed.pending p
    set claimed_at = v_now, lease_until = v_now + v_sub.lease, claim = v_claim, claimed_by = p_worker,
      lost_claims = p.lost_claims + case when p.claim is null then 0 else 1 end
    where p.ctid = any (v_rows) -- locked above: they stay where they are
    returning p.slot, p.id, p.attempts, case when p.lost_claims > 0 and p.id = any (v_over) then p.lost_claims else 0 end as lost_claims, p.ord
  )
  select v_sub.id, l.id, deed.message_id(l.created_at, l.id), v_claim, c.attempts, c.lost_claims,
    l.tenant_id, l.topic, l.key, l.type, l.content_type, l.headers, l.payload, l.created_at, c.ord
  from (
    -- before the content joins them: then it is not sorted along
    select m.slot, m.id, m.attempts, m.lost_claims, m.ord from claimed m order by m.ord, m.id offset 0
  ) c
  cross join lateral (
    select o.id, o.tenant_id, o.topic, o.key, o.type, o.content_type, o.headers, o.payload, o.created_at
    from deed.log o where o.slot = c.slot and o.id = c.id
    union all -- in one statement, since retention goes on moving messages; and only where it has, or each would be looked for twice
    select k.id, k.tenant_id, k.topic, k.key, k.type, k.content_type, k.headers, k.payload, k.created_at
    from deed.kept k
    where k.slot = c.slot and k.id = c.id
      and (select exists (select from deed.partitions p where p.read_window is not null and p.n >= (select min(i.id) from unnest(v_ids) i(id)) / 68719476736))
  ) l
  order by c.ord, c.id;
  get diagnostics v_found = row_count;
  if v_found < cardinality(v_rows) then
    perform deed.end_empty(array[v_sub.id], v_ids, v_now, p_worker);
  end if;
end
$$;
