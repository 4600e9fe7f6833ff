-- deed.finish: record that claimed messages were delivered.
--
-- One statement for the whole batch, only for rows whose claim is still the
-- caller's (O7), and one receipt (O16). Returns how many of p_ids this claim
-- has finished, so that a repeat after a lost answer says the same; a stale or
-- wrong claim finishes nothing and says 0, and the attempt is counted in the
-- receipt's column lost (O14). p_failed is how many messages of the batch
-- failed, for the receipt. Raises 55P03 where somebody keeps one of them locked for 0.3 s, as by a discard whose
-- transaction is open: nothing is recorded then, and the caller brings the others without it.
create or replace function deed.finish(
  p_subscription int,
  p_claim        bigint,
  p_ids          bigint[],
  p_failed       int default 0
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
set lock_timeout = '300ms'
as $$
declare
  v_done   int;
  v_before int := 0;
  v_asked  int := cardinality(p_ids);
begin
  -- One look-up by key for each message, whatever the statistics say.
  with done as (
    delete from deed.pending p
    where p.ctid = any (array(
        select q.ctid
        from unnest(p_ids) u(id)
        cross join lateral (
          select i.ctid from deed.pending i
          where i.subscription = p_subscription and i.id = u.id and i.claim = p_claim
          offset 0
        ) q
      ))
      and p.claim = p_claim
    returning p.slot, p.id, p.attempts, p.claimed_at, p.claimed_by
  ),
  receipt as (
    insert into deed.receipts (
      subscription, claim, worker, claimed_at, finished_at, min_id, max_id, ids, topics, attempts, finished, failed, lost
    )
    select p_subscription, p_claim, max(d.claimed_by), min(d.claimed_at), clock_timestamp(), min(d.id), max(d.id),
      array_agg(d.id order by d.id),
      case when p_subscription = 0 then deed.topics_of(array_agg(d.slot), array_agg(d.id)) end,
      case when max(d.attempts) > 0 then array_agg(d.attempts order by d.id) end,
      count(*), coalesce(p_failed, 0), 0
    from done d
    having count(*) > 0
  )
  select count(*) into v_done from done;
  if v_done >= v_asked then
    return v_done;
  end if;
  -- A row that extend has moved meanwhile is still the caller's.
  if exists (
    select from unnest(p_ids) u(id)
    cross join lateral (
      select from deed.pending p
      where p.subscription = p_subscription and p.id = u.id and p.claim = p_claim
      offset 0
    ) q
  ) then
    return deed.finish(p_subscription, p_claim, p_ids, case when v_done = 0 then p_failed else 0 end);
  end if;

  select count(*) into v_before
  from deed.receipts r
  cross join unnest(r.ids) i(id)
  where r.finished > 0
    and int8range(r.min_id, r.max_id, '[]') && (
      select int8range(min(a.id), max(a.id), '[]') from unnest(p_ids) a(id)
    )
    and r.subscription = p_subscription and r.claim = p_claim and i.id = any (p_ids);
  -- The second statement sees what the first one has just written.
  v_before := v_before - v_done;
  select count(distinct a.id) - v_done - v_before into v_asked from unnest(p_ids) a(id);
  if v_asked > 0 then
    insert into deed.receipts (subscription, claim, worker, finished_at, ids, finished, failed, lost)
    values (p_subscription, p_claim, session_user, clock_timestamp(), '{}', 0, 0, v_asked);
  end if;
  return v_done + v_before;
end
$$;
