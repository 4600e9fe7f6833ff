-- deed.fail: record that attempts at claimed messages did not succeed.
--
-- The arrays are parallel to p_ids. p_outcomes, null meaning 'retry':
--   retry    counts an attempt; next in p_after, else in 2^min(attempts, 10)
--            times the subscription's backoff (1 s), with jitter that never takes more than half of it (O8);
--            dead once max_attempts is reached (O9); p_after is at most 1,000 years
--   discard  counts an attempt and ends the message: dead
--   outage   the sink itself was down: counts no attempt, keeps the error
--   release  nothing was attempted: the message goes back as it was
-- Only rows whose claim is still the caller's; returns those. Clears the claim. Raises 55P03 as deed.finish does.
-- One that stood behind another of its key and was attempted stands free from
-- now on: what follows, and what comes late, waits for it (O13). If another has been
-- let go meanwhile, as after a lease that has run out, one of the two stands free: the
-- other one, if it has been claimed, tried or put off, else this. Who records outcomes of keys that
-- are kept in order has locked them (deed.lock_keys).
create or replace function deed.fail(
  p_subscription int,
  p_claim        bigint,
  p_ids          bigint[],
  p_errors       text[],
  p_after        interval[] default null,
  p_outcomes     text[] default null
) returns table (id bigint, attempts int, dead boolean, process_after timestamptz)
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
  v_now   timestamptz := clock_timestamp();
  v_rows  tid[];
  v_which int[];
  v_freed bigint[]; -- keys of which one that stood behind another was attempted
begin
  if exists (select from unnest(p_outcomes) o where o not in ('retry', 'discard', 'outage', 'release')) then
    raise exception 'fail: an outcome is retry, discard, outage or release' using errcode = 'DDARG';
  end if;
  if exists (select from unnest(p_after) a where a not between interval '-1000 years' and interval '1000 years') then
    raise exception 'fail: p_after is more than a thousand years away' using errcode = 'DDARG';
  end if;
  -- One look-up by key for each message, whatever the statistics say.
  select array_agg(q.ctid), array_agg(u.n::int), array_agg(q.key_hash) filter (where q.parked and coalesce(p_outcomes[u.n], 'retry') <> 'release')
  into v_rows, v_which, v_freed
  from (select i.id, i.n from unnest(p_ids) with ordinality i(id, n) order by i.id) u
  cross join lateral (
    select p.ctid, p.parked, p.key_hash from deed.pending p
    where p.subscription = p_subscription and p.id = u.id and p.claim = p_claim
    for update
  ) q;
  if v_freed is not null then
    -- What is attempted next is the one that failed.
    update deed.pending o set parked = true
    from unnest(v_freed) f(hash)
    where o.subscription = p_subscription and o.key_hash = f.hash and not o.parked
      and o.claim is null and o.attempts = 0 and o.lost_claims = 0 and o.last_error is null and o.dead_at is null and o.process_after is null;
  end if;
  return query
  update deed.pending p
  set attempts = p.attempts + u.counted,
    last_error = case when u.outcome = 'release' then p.last_error else u.error end,
    process_after = case
      when u.outcome = 'retry' then v_now + coalesce(
        u.after,
        power(2, least(p.attempts + 1, 10)) * s.backoff * (0.5 + random() / 2)
      )
      when u.after is not null and u.outcome <> 'discard' then v_now + u.after
      else p.process_after
    end,
    dead_at = case
      when u.outcome = 'discard' or (u.outcome = 'retry' and p.attempts + 1 >= s.max_attempts) then v_now
    end,
    parked = p.parked and (u.outcome = 'release' or exists (
      select from deed.pending o where o.subscription = p_subscription and o.key_hash = p.key_hash and not o.parked
    )),
    claim = null, claimed_at = null, claimed_by = null, lease_until = null
  from (
    select w.place, r.after, coalesce(r.outcome, 'retry') as outcome,
      left(coalesce(nullif(r.error, ''), 'no cause given'), 2000) as error,
      case when coalesce(r.outcome, 'retry') in ('retry', 'discard') then 1 else 0 end as counted
    from unnest(v_rows, v_which) w(place, n)
    cross join lateral (
      select p_errors[w.n] as error, p_after[w.n] as after, p_outcomes[w.n] as outcome
    ) r
  ) u
  cross join deed.subscriptions s
  where s.id = p_subscription
    and p.ctid = u.place
  returning p.id, p.attempts, p.dead_at is not null, p.process_after;
end
$$;
