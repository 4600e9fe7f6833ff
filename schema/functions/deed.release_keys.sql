-- deed.release_keys: let the next message of each key go, after deed.finish and
-- deed.fail have recorded what became of those before it.
--
-- Of each key of a stream one message that is aside stands free: the one that
-- was tried, failed, waits or is dead. The others are parked behind it, whatever
-- their numbers, and while it is there none of them is let go (O13). Then the
-- first of them by number is. Returns the keys that have none left.
create or replace function deed.release_keys(
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
  v_hash    bigint;
  v_first   bigint;
  v_drained bigint[] := '{}';
begin
  for v_hash in select distinct u from unnest(p_hashes) u order by u loop
    continue when exists (
      select from deed.pending p
      where p.subscription = p_subscription and p.key_hash = v_hash and not p.parked
    );
    select p.id into v_first
    from deed.pending p
    where p.subscription = p_subscription and p.key_hash = v_hash
    order by p.id
    limit 1
    for update;
    if not found then
      v_drained := v_drained || v_hash;
    else
      update deed.pending p set parked = false
      where p.subscription = p_subscription and p.id = v_first;
    end if;
  end loop;
  return v_drained;
end
$$;
