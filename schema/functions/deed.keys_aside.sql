-- deed.keys_aside: the hashes of keys of which a stream has put messages aside, of the
-- slots that the parallel arrays name.
--
-- From one key to the next, as many messages may be parked behind each; and within those
-- slots alone, each of which is four ranges of hashes (deed.key_hash): what other lanes have
-- aside costs nothing. One or two looks at an index for each key.
create or replace function deed.keys_aside(
  p_subscription int,
  p_slots_from   int[],
  p_slots_upto   int[]
) returns setof bigint
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
begin
  return query
  with recursive keys(hash, upto) as (
    select n.hash, r.upto
    from unnest(p_slots_from, p_slots_upto) s(lo, hi)
    cross join unnest('{0,64,-128,-64}'::bigint[]) q(high) -- a slot is six bits of the first byte, which has a sign
    cross join lateral (
      select (q.high + s.lo % 64) * 72057594037927936 as lo, (q.high + s.hi % 64) * 72057594037927936 + 72057594037927935 as upto
    ) r
    cross join lateral (
      select p.key_hash as hash from deed.pending p
      where p.subscription = p_subscription and p.key_hash >= r.lo and p.key_hash <= r.upto
      order by p.key_hash
      limit 1
    ) n
    union all
    select n.hash, k.upto
    from keys k
    cross join lateral (
      select p.key_hash as hash from deed.pending p
      where p.subscription = p_subscription and p.key_hash > k.hash and p.key_hash <= k.upto
      order by p.key_hash
      limit 1
    ) n
  )
  select k.hash from keys k;
end
$$;
