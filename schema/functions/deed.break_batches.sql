-- deed.break_batches: give up the batches in doubt of a provider that may not be
-- repeated any more (deed.batch_stands), or with p_all every one: each member is
-- from now on a delivery in doubt of its own, without a key.
--
-- The first member of a batch is due in its stead; it is looked at when its time
-- has come. Where that one is gone there is nothing to wait for. A batch of which
-- somebody has a member in hand is left alone.
create or replace function deed.break_batches(
  p_provider text,
  p_all      boolean default false
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_batches uuid[];
begin
  select array_agg(b.batch_id) into v_batches
  from (
    select c.batch_id
    from deed.channel_outbox c
    where c.provider = p_provider and c.status = 'sending' and c.batch_until is not null
    group by c.batch_id
    having bool_and(c.lease_until is null and c.doubt_since is not null)
    offset 0
  ) b
  where p_all or not exists (
    select from deed.channel_outbox h
    where h.provider = p_provider and h.status = 'sending' and h.batch_id = b.batch_id and h.batch_place = 1 and h.batch_until is not null
      and h.held_at is null and (h.ord > v_now or deed.batch_stands(p_provider, b.batch_id))
  );
  if v_batches is null then
    return;
  end if;
  update deed.channel_outbox c
  set batch_until = null, process_after = case when c.held_at is null then null else c.process_after end, updated_at = v_now
  where c.ctid = any (array(
    select o.ctid from deed.channel_outbox o
    where o.provider = p_provider and o.status = 'sending' and o.batch_id = any (v_batches) and o.batch_until is not null and o.lease_until is null
    for update skip locked
  ));
end
$$;
