-- deed.finish_page: record that a lane has come to a position in the log.
--
-- Writes one row of deed.progress and, for each message that is put aside, one of
-- deed.pending; locks the free row of each key that is put aside (deed.try_lock_keys).
--
-- The row that it follows, which must be the lane's last:
--   p_fence  the owner's number, under which that row was written
--   p_n      its number
--   p_was    what it says: from_window/to_window/slot/id, with 0 for no window
-- All three are compared: a crash or a failover may take back numbers of rows and
-- of owners, and give them to others. If there is no such row, or a window is not
-- what the caller takes it for, nothing is recorded and n is null: the lane is to be
-- read again from its durable row.
--
-- The row that it makes, whose number is n:
--   p_from, p_from_h         the window up to which everything has been read
--   p_to, p_to_h             the window that is being read; null: none
--   p_slot, p_id             how far in it
--   p_messages               were read since, from number p_min to p_max
--   p_worker                 by whom, for people
--
-- Of the messages those that need attention of their own are put aside. The arrays
-- are parallel, in the order of the page:
--   p_ids, p_slots           which they are
--   p_hashes                 of their keys; null: none is kept in order
--   p_errors, p_after        what failed, and in how long to try again; null: by the
--                            subscription's back-off
--   p_outcomes               as deed.fail's, and
--     park   it stands behind another of its key
--     later  it is to wait for its process_after
--     doubt  it may be what killed the owners before: it is tried alone (O17)
-- A message whose key has others aside is parked behind them, one whose key has
-- none is not. dead says of each, in the same order, whether it is. What is of a
-- tenant that has been removed meanwhile is not put aside.
create or replace function deed.finish_page(
  p_subscription int,
  p_lane         int,
  p_fence        bigint,
  p_n            bigint,
  p_was          text,
  p_from         bigint,
  p_from_h       xid8,
  p_to           bigint,
  p_to_h         xid8,
  p_slot         int,
  p_id           bigint,
  p_messages     int,
  p_min          bigint,
  p_max          bigint,
  p_worker       text,
  p_ids          bigint[] default null,
  p_slots        int[] default null,
  p_hashes       bigint[] default null,
  p_errors       text[] default null,
  p_after        interval[] default null,
  p_outcomes     text[] default null,
  out n          bigint,
  out dead       boolean[]
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_aside  int := coalesce(cardinality(p_ids), 0);
  v_sub    record;
  v_keys   bigint[];
  v_parked boolean;
  v_dead   boolean;
begin
  insert into deed.progress as g (
    subscription, lane, n, fence, from_window, to_window, slot, id, messages, aside, aside_ids, total, min_id, max_id, worker, finished_at
  )
  select p_subscription, p_lane, p_n + 1, p_fence, p_from, p_to, p_slot, p_id, p_messages, v_aside,
    case when v_aside > 0 then p_ids end, last.total + p_messages - v_aside, p_min, p_max, p_worker, v_now
  from deed.progress last
  where last.subscription = p_subscription and last.lane = p_lane and last.n = p_n and last.fence = p_fence
    and concat_ws('/', last.from_window, coalesce(last.to_window, 0), last.slot, last.id) = p_was
    and exists (select from deed.windows w where w.n = p_from and w.h = p_from_h)
    and (p_to is null or exists (select from deed.windows w where w.n = p_to and w.h = p_to_h))
  on conflict do nothing
  returning g.n into n;
  if n is null or v_aside = 0 then
    return;
  end if;

  select s.max_attempts, s.backoff into v_sub from deed.subscriptions s where s.id = p_subscription;
  -- Waits for whoever is just finishing the first of a key, and not for one who keeps it locked.
  v_keys := deed.try_lock_keys(p_subscription, p_hashes);
  for i in 1..v_aside loop
    v_parked := coalesce(p_hashes[i] = any (v_keys), false);
    if not v_parked and p_hashes[i] is not null then
      v_keys := v_keys || p_hashes[i];
    end if;
    v_dead := p_outcomes[i] = 'discard' or (p_outcomes[i] = 'retry' and coalesce(1 >= v_sub.max_attempts, false));
    insert into deed.pending (
      subscription, slot, id, attempts, lost_claims, parked, tenant_id, ord_at, process_after, dead_at, last_error, key_hash
    )
    select p_subscription, l.slot, l.id,
      case when p_outcomes[i] in ('retry', 'discard') then 1 else 0 end,
      case when p_outcomes[i] = 'doubt' then 2 else 0 end,
      v_parked, l.tenant_id, deed.order_at(l.created_at, v_now),
      case p_outcomes[i]
        when 'retry' then v_now + coalesce(p_after[i], 2 * v_sub.backoff * (0.5 + random() / 2))
        when 'later' then l.process_after
      end,
      case when v_dead then v_now end,
      case when p_outcomes[i] in ('retry', 'discard') then left(coalesce(nullif(p_errors[i], ''), 'no cause given'), 2000) end,
      p_hashes[i]
    from deed.log l
    where l.slot = p_slots[i] and l.id = p_ids[i]
      and l.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
    on conflict do nothing; -- read again in another cluster (the window protocol's rule 9)
    if not found and not exists (select from deed.pending p where p.subscription = p_subscription and p.id = p_ids[i])
      and not exists (select from deed.log l where l.slot = p_slots[i] and l.id = p_ids[i])
      and not exists (select from deed.tenant_removals r where r.read_window > p_from)
    then
      raise exception 'finish_page: message % is to be put aside, and its content is gone', p_ids[i] using errcode = 'DDCON';
    end if;
    dead := dead || v_dead;
  end loop;
end
$$;
