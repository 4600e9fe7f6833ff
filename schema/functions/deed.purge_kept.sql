-- deed.purge_kept: remove the kept content of messages that are finished.
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
begin
  select array_agg(q.slot order by q.slot, q.id), array_agg(q.id order by q.slot, q.id) into v_slots, v_ids
  from (
    select k.slot, k.id from deed.kept k
    where (k.slot, k.id) > (p_slot, p_id)
    order by k.slot, k.id
    limit p_limit
  ) q;
  delete from deed.kept k
  using unnest(v_slots, v_ids) u(slot, id)
  where k.slot = u.slot and k.id = u.id
    and not exists (
      select from deed.subscriptions s
      join deed.pending p on p.subscription = s.id and p.id = u.id
      where s.id = 0 or s.topic = k.topic
    );
  get diagnostics removed = row_count;
  if cardinality(v_ids) = p_limit then
    next_slot := v_slots[p_limit];
    next_id := v_ids[p_limit];
  end if;
end
$$;
