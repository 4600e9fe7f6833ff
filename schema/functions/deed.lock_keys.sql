-- deed.lock_keys: lock keys of which a stream has put messages aside, each by
-- the one that stands free, in the order of their hashes.
--
-- Whoever changes what is aside of several keys, or puts more behind them, calls
-- it first: those that stand behind are locked by nobody who does not have the
-- free one. Without that order the owner that finishes what it had in hand and
-- the one that has taken its lane over deadlock. Returns the keys that have messages aside.
create or replace function deed.lock_keys(
  p_subscription int,
  p_hashes       bigint[]
) returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_hash  bigint;
  v_found boolean;
  v_aside bigint[] := '{}';
begin
  for v_hash in select distinct u from unnest(p_hashes) u where u is not null order by u loop
    for i in 1..10 loop
      perform from deed.pending p
      where p.subscription = p_subscription and p.key_hash = v_hash and not p.parked
      limit 1
      for update;
      v_found := found;
      exit when v_found;
      -- None: or it was finished while this waited, and another is free now, which
      -- only the next statement sees.
      v_found := exists (select from deed.pending p where p.subscription = p_subscription and p.key_hash = v_hash);
      exit when not v_found;
      if i = 10 then -- stranded (deed.heal_keys)
        perform from deed.pending p
        where p.subscription = p_subscription and p.key_hash = v_hash
        order by p.id
        limit 1
        for update;
      end if;
    end loop;
    if v_found then
      v_aside := v_aside || v_hash;
    end if;
  end loop;
  return v_aside;
end
$$;
