-- m10_recovery.outbox_written: what writing to m10_recovery.outbox does.
--
-- INSERT publishes. UPDATE of process_after alone reschedules what is unclaimed;
-- what somebody has in hand, or is dead, it passes over and does not count.
-- DELETE names finished messages for deed.purge, which the statement's end
-- calls. What is deed's to manage is refused with DDARG and the name of the
-- function to call instead.
create or replace function m10_recovery.outbox_written() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ours text;
  v_door text;
begin
  if tg_level = 'STATEMENT' then
    perform deed.purge();
    return null;
  end if;

  if tg_op = 'DELETE' then
    if old.processed_at is null then
      raise exception 'outbox: event % has not been processed, and is not deleted', old.id
        using errcode = 'DDARG', hint = 'An operator gives up a dead message with: deed dead discard ID --reason TEXT';
    end if;
    -- What another subscription has still to deliver stays, and is not counted.
    return case when deed.ask_purge(old.id, old.event_type) then old end;
  end if;

  if tg_op = 'UPDATE' and new.process_after is distinct from old.process_after
    and (to_jsonb(new) - 'process_after') = (to_jsonb(old) - 'process_after') then
    if old.processed_at is not null then
      raise exception 'outbox: event % has been processed, and is not scheduled any more', old.id using errcode = 'DDARG';
    end if;
    if not (pg_has_role(current_user, 'deed_worker', 'usage') or pg_has_role(current_user, 'deed_admin', 'usage')) then
      raise exception 'outbox: % may not reschedule', current_user
        using errcode = '42501', hint = 'A login that has deed_worker or deed_admin may.';
    end if;
    select s.name into v_door
    from deed.pending p
    join deed.subscriptions s on s.id = p.subscription
    where p.subscription = any (deed.doors()) and p.id = old.id;
    if not found or deed.reschedule(old.id, new.process_after, v_door) = 0 then
      return null;
    end if;
    return new;
  end if;

  if tg_op = 'UPDATE' then
    v_ours := case
      when new.processed_at is distinct from old.processed_at then 'processed_at'
      when new.retry_count is distinct from old.retry_count then 'retry_count'
      when new.claimed_at is distinct from old.claimed_at then 'claimed_at'
      when new.claimed_by is distinct from old.claimed_by then 'claimed_by' end;
    raise exception 'outbox: % is not written by hand', coalesce(v_ours, 'a published event')
      using errcode = 'DDARG', hint = case
        when v_ours in ('claimed_at', 'claimed_by')
          then 'Call m10_recovery.claim_outbox_events(processor, size); a claim comes back by itself after five minutes.'
        when v_ours is not null then 'Call m10_recovery.complete_outbox_event(event, processor, success, error).'
        else 'It stays as it was published; publish another one.' end;
  end if;

  v_ours := case
    when new.id is not null then 'id'
    when new.processed_at is not null then 'processed_at'
    when new.retry_count <> 0 then 'retry_count'
    when new.claimed_at is not null then 'claimed_at'
    when new.claimed_by is not null then 'claimed_by' end;
  if v_ours is not null then
    raise exception 'outbox: % is deed''s to write', v_ours
      using errcode = 'DDARG',
        hint = 'Call m10_recovery.publish_outbox(aggregate_type, aggregate_id, event_type, payload).';
  end if;
  new.created_at := coalesce(new.created_at, clock_timestamp());
  select p.id into new.id
  from deed.publish_many(
    array[new.event_type], array[convert_to(new.payload::text, 'UTF8')],
    p_keys => array[new.aggregate_id], p_process_after => array[new.process_after],
    p_created_at => array[new.created_at], p_aggregate_types => array[new.aggregate_type]
  ) p;
  new.retry_count := 0;
  return new;
end
$$;

create or replace trigger outbox_written instead of insert or update or delete on m10_recovery.outbox
  for each row execute function m10_recovery.outbox_written();
create or replace trigger outbox_deleted after delete on m10_recovery.outbox
  for each statement execute function m10_recovery.outbox_written();
