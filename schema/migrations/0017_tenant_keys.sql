-- breaking: yes
-- A key of a stream is its tenant's own: its hash holds the tenant, too. What
-- is aside gets the new hash here.
--
-- Relays that run hash keys the old way. They lose their lanes: whatever they
-- record of them is refused from here on, so each ends at the page it has in
-- hand, and deed.take_lanes gives them none again. The leases stay as they are:
-- who takes the lanes next waits for them as for a relay that has died, so that
-- nobody delivers beside an older one. A relay that has stopped holds none.
drop function if exists deed.take_lanes(uuid, text, int[], boolean);

do $$
declare
  v_lane record;
  v_n    bigint;
begin
  for v_lane in
    update deed.lanes l set fence = nextval('deed.claim_seq') returning l.subscription, l.lane, l.fence
  loop
    loop
      insert into deed.progress as g (subscription, lane, n, fence, from_window, to_window, slot, id, total)
      select last.subscription, last.lane, last.n + 1, v_lane.fence, last.from_window, last.to_window, last.slot, last.id, last.total
      from deed.progress last
      where last.subscription = v_lane.subscription and last.lane = v_lane.lane
      order by last.n desc
      limit 1
      on conflict do nothing -- its owner has just recorded a page: once more
      returning g.n into v_n;
      exit when found;
    end loop;
    update deed.lanes l set taken_n = v_n where l.subscription = v_lane.subscription and l.lane = v_lane.lane;
  end loop;
end
$$;

-- Of each key one message stands free: the one that has failed, else the first.
-- Claims end, as those who have them would let the keys go by the old hashes.
do $$
begin
  perform from deed.pending p where p.key_hash is not null order by p.subscription, p.key_hash, p.id for update;
  update deed.pending p
  set key_hash = k.hash, parked = k.place > 1, claim = null, claimed_at = null, claimed_by = null, lease_until = null
  from (
    select h.subscription, h.id, h.hash, row_number() over (
      partition by h.subscription, h.hash order by h.parked, h.dead_at is null and h.attempts = 0, h.id
    ) as place
    from (
      select p.subscription, p.id, p.parked, p.dead_at, p.attempts, ('x' || encode(
        substr(int8send(p.key_hash), 1, 1) || substr(sha256(uuid_send(p.tenant_id) || int8send(p.key_hash)), 1, 7), 'hex'
      ))::bit(64)::bigint as hash
      from deed.pending p
      where p.key_hash is not null
    ) h
  ) k
  where p.subscription = k.subscription and p.id = k.id;
end
$$;
