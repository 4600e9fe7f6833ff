-- deed.purge_kept: remove the kept content of messages that are finished.
--
-- Content stays while a subscription of its topic is still being brought what
-- was published before it. What such a one is just being given is locked, and
-- passed over: what nobody needs is locked first, and asked for again by a
-- statement that sees all that had ended then.
--
-- Looks at up to p_limit messages after (p_slot, p_id) and returns the last of
-- them; next_slot is null at the end.
create or replace function deed.purge_kept(
  p_slot        int,
  p_id          bigint,
  p_limit       int default 5000,
  out removed   int,
  out next_slot int,
  out next_id   bigint
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_slots int[];
  v_ids   bigint[];
  v_rows  tid[];
begin
  select array_agg(q.slot order by q.slot, q.id), array_agg(q.id order by q.slot, q.id) into v_slots, v_ids
  from (
    select k.slot, k.id from deed.kept k
    where (k.slot, k.id) > (p_slot, p_id)
    order by k.slot, k.id
    limit p_limit
  ) q;
  v_rows := array(
    select k.ctid
    from unnest(v_slots, v_ids) u(slot, id)
    join deed.kept k on k.slot = u.slot and k.id = u.id
    where not exists (
        select from deed.subscriptions s
        join deed.pending p on p.subscription = s.id and p.id = u.id
        where s.id = 0 or s.topic = k.topic
      )
      and not exists (
        select from deed.subscriptions s
        join deed.backfills b on b.subscription = s.id
        where s.topic = k.topic and b.finished_at is null
      )
    for update of k skip locked
  );
  delete from deed.kept k
  where k.ctid = any (v_rows)
    and not exists (
      select from deed.subscriptions s
      join deed.pending p on p.subscription = s.id and p.id = k.id
      where s.id = 0 or s.topic = k.topic
    );
  get diagnostics removed = row_count;
  if cardinality(v_ids) = p_limit then
    next_slot := v_slots[p_limit];
    next_id := v_ids[p_limit];
  end if;
end
$$;
