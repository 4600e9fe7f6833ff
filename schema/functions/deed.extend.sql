-- deed.extend: renew the lease of claimed messages.
--
-- Returns the ids whose claim is still the caller's; the others are another
-- worker's by now and must not be finished or reported. One that somebody has locked, as by a
-- discard whose transaction is open, is not renewed, and the caller's while its lease lasts: it is not
-- waited for, since all that the caller has in hand would lose its lease meanwhile. p_lease null: the subscription's.
create or replace function deed.extend(
  p_subscription int,
  p_claim        bigint,
  p_ids          bigint[],
  p_lease        interval default null
) returns bigint[]
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
  v_rows tid[];
  v_held bigint[];
begin
  if p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'extend: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;
  -- One look-up by key for each message, whatever the statistics say.
  v_rows := array(
    select q.ctid
    from unnest(p_ids) u(id)
    cross join lateral (
      select p.ctid from deed.pending p
      where p.subscription = p_subscription and p.id = u.id and p.claim = p_claim
      for update skip locked
    ) q
  );
  with held as (
    update deed.pending p
    set lease_until = clock_timestamp() + coalesce(
      p_lease, (select s.lease from deed.subscriptions s where s.id = p_subscription)
    )
    where p.ctid = any (v_rows)
    returning p.id
  )
  select coalesce(array_agg(h.id), '{}') into v_held from held h;
  if cardinality(v_held) < cardinality(p_ids) then
    v_held := v_held || array(
      select q.id
      from unnest(p_ids) u(id)
      cross join lateral (
        select p.id from deed.pending p
        where p.subscription = p_subscription and p.id = u.id and p.claim = p_claim and p.lease_until > clock_timestamp()
      ) q
      where q.id <> all (v_held)
    );
  end if;
  return v_held;
end
$$;
