-- deed.break_batches: give up batches in doubt of a provider that may not be
-- repeated any more (deed.batch_stands), or with p_all whichever: each member is
-- from now on a delivery in doubt of its own, without a key.
--
-- The first member of a batch is due in its stead; it is looked at when its time
-- has come. Where that one is gone there is nothing to wait for. A batch of which
-- somebody has a member in hand is left alone; where that lease has run out, and nothing
-- else leads to the member any more, it is made due, so that deed.claim_doubts finds it.
--
-- Called with every claim, it reads one member each of at most 200 batches, and all
-- members of few: from a batch at random on, so that each has its turn however many
-- there are. One that is not looked at in time is claimed, and refused by deed.may_repeat.
create or replace function deed.break_batches(
  p_provider text,
  p_all      boolean default false
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off -- members by their batch's key, whatever else the provider has in doubt
set jit = off
as $$
declare
  c_halves constant int := 100; -- batches that are looked at, on either side of v_from
  c_whole  constant int := 8;   -- of which all members are, since the first is due
  v_now     timestamptz := clock_timestamp();
  v_from    uuid := gen_random_uuid();
  v_batches uuid[];
  v_due     uuid[];
  v_lost    tid[];
begin
  -- The member of each with the lowest place, which is the first unless that is gone.
  with recursive heads as (
    select f.batch_id, f.batch_place, f.waits, f.free, s.upto, 1 as n
    from (values (v_from, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid), ('00000000-0000-0000-0000-000000000000', v_from)) s(base, upto)
    cross join lateral (
      select c.batch_id, c.batch_place, c.held_at is null and c.ord > v_now as waits, c.lease_until is null and c.doubt_since is not null or c.lease_until <= v_now as free
      from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'sending' and c.batch_until is not null and c.batch_id >= s.base and c.batch_id < s.upto
      order by c.batch_id, c.batch_place
      limit 1
    ) f
    union all
    select f.batch_id, f.batch_place, f.waits, f.free, h.upto, h.n + 1
    from heads h
    cross join lateral (
      select c.batch_id, c.batch_place, c.held_at is null and c.ord > v_now as waits, c.lease_until is null and c.doubt_since is not null or c.lease_until <= v_now as free
      from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'sending' and c.batch_until is not null and c.batch_id > h.batch_id and c.batch_id < h.upto
      order by c.batch_id, c.batch_place
      limit 1
    ) f
    where h.n < c_halves
  )
  select array_agg(h.batch_id) filter (where p_all or h.batch_place > 1),
    (array_agg(h.batch_id) filter (where not p_all and h.batch_place = 1 and not h.waits))[1:c_whole]
  into v_batches, v_due
  from heads h
  where h.free;
  if v_batches is null and v_due is null then
    return;
  end if;
  with members as materialized (
    select b.batch_id, b.is_due, m.place, m.taken, m.lost
    from (
      select u.batch_id, false as is_due from unnest(v_batches) u(batch_id)
      union all
      select u.batch_id, true from unnest(v_due) u(batch_id)
    ) b
    cross join lateral (
      select c.ctid as place, c.lease_until is not null or c.doubt_since is null as taken, c.lease_until <= v_now and c.held_at is null and c.ord > v_now as lost
      from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'sending' and c.batch_id = b.batch_id and c.batch_until is not null
      order by c.batch_place
      offset 0
    ) m
  )
  select (select array_agg(m.place) from members m where m.lost),
    array(
      select m.batch_id from members m
      group by m.batch_id
      having not bool_or(m.taken) and (not bool_or(m.is_due) or not deed.batch_stands(p_provider, m.batch_id))
    )
  into v_lost, v_batches;
  if v_lost is not null then
    update deed.channel_outbox c
    set process_after = v_now, updated_at = v_now
    where c.ctid = any (array(
      select o.ctid from unnest(v_lost) u(place)
      cross join lateral (select d.ctid from deed.channel_outbox d where d.ctid = u.place and d.lease_until <= v_now and d.ord > v_now for update skip locked) o
    ));
  end if;
  if v_batches = '{}' then
    return;
  end if;
  update deed.channel_outbox c
  set batch_until = null, process_after = case when c.held_at is null then null else c.process_after end, updated_at = v_now
  where c.ctid = any (array(
    select m.place
    from unnest(v_batches) b(batch_id)
    cross join lateral (
      select o.ctid as place
      from deed.channel_outbox o
      where o.provider = p_provider and o.status = 'sending' and o.batch_id = b.batch_id and o.batch_until is not null and o.lease_until is null
      order by o.batch_place
      for update skip locked
    ) m
  ));
end
$$;
