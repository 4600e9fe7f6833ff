-- deed.finish_doors: record that what a face has claimed was delivered.
--
-- Only rows that p_worker holds; in one statement for the whole batch, with one
-- receipt a subscription. p_message_ids, parallel to p_ids if given: the
-- identities, which differ when a number was used twice. Returns how many this
-- worker has finished, so that a repeat after a lost answer says the same; what
-- it does not hold counts for nothing, and in a receipt's column lost (O14). What was
-- claimed before its topic became a stream, or its subscription was a door no more, is finished like the rest.
create or replace function deed.finish_doors(
  p_worker      text,
  p_ids         bigint[],
  p_message_ids uuid[] default null
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
as $$
declare
  v_doors  int[] := array(select s.id from deed.subscriptions s where s.door order by s.id); -- streams', too: see above
  v_done   int;
  v_sum    int := 0;
  v_before int;
  v_lost   int;
begin
  if p_worker is null then
    return 0;
  end if;
  -- Again, if an extension has moved a row meanwhile: it is still the caller's.
  for v_try in 1..4 loop
    -- One look-up by key for each message, whatever the statistics say. ord_at is
    -- the time of the identity, unless that was in the future.
    with done as (
      delete from deed.pending p
      where p.ctid = any (array(
          select q.ctid
          from unnest(v_doors) d(id)
          cross join unnest(p_ids, p_message_ids) u(id, message_id)
          cross join lateral (
            select i.ctid from deed.pending i
            where i.subscription = d.id and i.id = u.id and i.claimed_by = p_worker
              and i.key_hash is null -- else a stream has put it aside
              and (
                p_message_ids is null
                or u.message_id = deed.message_id(i.ord_at, i.id)
                or exists (
                  select from deed.log l
                  where l.slot = i.slot and l.id = i.id and deed.message_id(l.created_at, l.id) = u.message_id
                )
                or exists (
                  select from deed.kept l
                  where l.slot = i.slot and l.id = i.id and deed.message_id(l.created_at, l.id) = u.message_id
                )
              )
            offset 0
          ) q
        ))
        and p.claimed_by = p_worker
      returning p.subscription, p.claim, p.slot, p.id, p.attempts, p.claimed_at
    ),
    receipt as (
      insert into deed.receipts (
        subscription, claim, worker, claimed_at, finished_at, min_id, max_id, ids, topics, attempts, finished, failed, lost
      )
      select d.subscription, max(d.claim), p_worker, min(d.claimed_at), clock_timestamp(), min(d.id), max(d.id),
        array_agg(d.id order by d.id),
        case when d.subscription = 0 then deed.topics_of(array_agg(d.slot), array_agg(d.id)) end,
        case when max(d.attempts) > 0 then array_agg(d.attempts order by d.id) end,
        count(*), 0, 0
      from done d
      group by d.subscription
    )
    select count(*) into v_done from done;
    v_sum := v_sum + v_done;
    if v_sum >= cardinality(p_ids) then
      return v_sum;
    end if;
    v_doors := array(select s.id from deed.subscriptions s where s.door or s.door_until > clock_timestamp() order by s.id);
    exit when not exists (
      select from unnest(v_doors) d(id)
      cross join unnest(p_ids) u(id)
      cross join lateral (
        select from deed.pending p where p.subscription = d.id and p.id = u.id and p.claimed_by = p_worker and p.key_hash is null offset 0
      ) q
    );
  end loop;

  select count(*) into v_before
  from deed.receipts r
  cross join unnest(r.ids) i(id)
  where r.finished > 0
    and int8range(r.min_id, r.max_id, '[]') && (
      select int8range(min(a.id), max(a.id), '[]') from unnest(p_ids) a(id)
    )
    and r.subscription = any (v_doors) and r.worker = p_worker and r.outcome = 'delivered' and i.id = any (p_ids);
  select count(distinct a.id) - v_before into v_lost from unnest(p_ids) a(id);
  if v_lost > 0 then
    insert into deed.receipts (subscription, claim, worker, finished_at, ids, finished, failed, lost)
    values (0, 0, p_worker, clock_timestamp(), '{}', 0, 0, v_lost);
  end if;
  return v_before;
end
$$;
