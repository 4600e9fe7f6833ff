-- deed.release_keys: let the next message of each key go, after deed.finish and
-- deed.fail have recorded what became of those before it.
--
-- Of each key of a stream one message that is aside stands free: the one that
-- was tried, failed, waits or is dead. The others are parked behind it, whatever
-- their numbers, and while it is there none of them is let go (O13). Then the
-- first of them by number is. One that stays locked, as by a person's deed.discard in a
-- transaction that is left open, is waited for half a second and overtaken by none:
-- deed.heal_keys lets its key go. Returns the keys that have none left.
create or replace function deed.release_keys(
  p_subscription int,
  p_hashes       bigint[]
) returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
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
    loop
      exit when exists (
        select from deed.pending p
        where p.subscription = p_subscription and p.key_hash = v_hash and not p.parked
      );
      select p.id into v_first
      from deed.pending p
      where p.subscription = p_subscription and p.key_hash = v_hash
      order by p.id
      limit 1;
      if not found then
        v_drained := v_drained || v_hash;
        exit;
      end if;
      perform from deed.pending p where p.subscription = p_subscription and p.id = v_first for update skip locked;
      if found then
        update deed.pending p set parked = false
        where p.subscription = p_subscription and p.id = v_first;
        exit;
      end if;
      begin -- locked, or gone: once more, when that has ended
        perform from deed.pending p where p.subscription = p_subscription and p.id = v_first for update;
      exception when lock_not_available then
        perform set_config('lock_timeout', '5ms', true); -- the others are not waited for as long
        exit;
      end;
    end loop;
  end loop;
  return v_drained;
end
$$;
