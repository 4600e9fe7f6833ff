-- deed.take_turn: accept a message that had failed once more, to be run when no other
-- one of its sender is. For deed.accept_messages and deed.retry_messages, which have
-- locked it. No claim that there was counts any more. Raises 40001 where a transaction's snapshot hides who is before it.
create or replace function deed.take_turn(p_id uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
as $$
begin
  for v_try in 1 .. 100 loop
    -- Locked, so that it cannot end before this one is there to have the turn.
    perform from deed.channel_messages o, deed.channel_messages m
    where m.id = p_id and o.tenant_id = m.tenant_id and o.source = m.source and o.kind = m.kind and o.sender = m.sender and o.id <> m.id
      and coalesce(o.lease_until, o.process_after) < 'infinity'
    for no key update of o;
    begin
      update deed.channel_messages m
      set status = 'accepted', claim = deed.claim_number(), lease_until = case when found then 'infinity' else clock_timestamp() end, claimed_by = null, claimed_at = null,
        process_after = null, held_at = null, finished_at = null
      where m.id = p_id;
      return;
    exception when unique_violation then -- another one of the sender has begun meanwhile
    end;
  end loop;
  raise exception 'take_turn: this transaction''s snapshot hides who is before message %', p_id using errcode = '40001';
end
$$;
