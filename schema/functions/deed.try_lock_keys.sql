-- deed.try_lock_keys: deed.lock_keys for who cannot wait as long as it takes, as a
-- lane with what it has delivered.
--
-- Keys that stay locked for three seconds, as by a person's deed.discard in a transaction
-- that is left open, are returned without a lock, as ones that have messages aside:
-- what is put behind those is let go in their turn or, where the one that stood
-- free has gone meanwhile, by deed.heal_keys. The others are locked.
create or replace function deed.try_lock_keys(
  p_subscription int,
  p_hashes       bigint[]
) returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set lock_timeout = '3s'
set jit = off
as $$
declare
  v_hash  bigint;
  v_aside bigint[] := '{}';
begin
  begin
    return deed.lock_keys(p_subscription, p_hashes);
  exception when lock_not_available then
    perform set_config('lock_timeout', '5ms', true);
  end;
  for v_hash in select distinct u from unnest(p_hashes) u where u is not null order by u loop
    begin
      v_aside := v_aside || deed.lock_keys(p_subscription, array[v_hash]);
    exception when lock_not_available then
      v_aside := v_aside || v_hash;
    end;
  end loop;
  return v_aside;
end
$$;
