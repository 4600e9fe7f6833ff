-- deed.heal_keys: let the first message go of each key of a stream of which all
-- that is aside is parked: behind something that is not there any more, such as
-- a row that somebody deleted, or because the first was locked when its turn came
-- (deed.release_keys, deed.try_lock_keys).
--
-- For the holder of lanes, whose slots the parallel arrays name. The release of a
-- key that has been let go meanwhile changes nothing. Costs two looks at an index
-- for each key that has messages aside. Returns the keys that it has let go: one whose
-- first is still locked is not among them.
create or replace function deed.heal_keys(
  p_subscription int,
  p_slots_from   int[],
  p_slots_upto   int[]
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
  v_hashes bigint[];
begin
  select array_agg(k.hash) into v_hashes
  from deed.keys_aside(p_subscription, p_slots_from, p_slots_upto) k(hash)
  where not exists (
    select from deed.pending p
    where p.subscription = p_subscription and p.key_hash = k.hash and not p.parked
    offset 0 -- each by its hash: no join, which would read all of them
  );
  if v_hashes is not null then
    perform deed.release_keys(p_subscription, v_hashes);
    select array_agg(u.hash) into v_hashes
    from unnest(v_hashes) u(hash)
    where exists (select from deed.pending p where p.subscription = p_subscription and p.key_hash = u.hash and not p.parked offset 0);
  end if;
  return v_hashes;
end
$$;
