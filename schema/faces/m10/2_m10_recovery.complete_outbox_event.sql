-- m10_recovery.complete_outbox_event: record how an event's processing ended.
--
-- Success: it is finished. Failure: one retry more, the error kept, the claim
-- cleared, due again in exactly 2^min(retry_count, 10) seconds (O8), for ever
-- (O9). If the claim is no longer the processor's, nothing happens but a warning
-- (O14); a repeat of a success is silent. What was claimed before its topic became
-- a stream, or its subscription was a door no more, is completed like the rest.
create or replace function m10_recovery.complete_outbox_event(
  p_event_id     bigint,
  p_processor_id text,
  p_success      boolean,
  p_error        text default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_event_id is null or p_processor_id is null or p_success is null then
    raise exception 'complete_outbox_event: event, processor and success must not be null' using errcode = 'DDARG';
  end if;
  if p_success then
    if deed.finish_doors(p_processor_id, array[p_event_id]) = 1 then
      return;
    end if;
  else
    update deed.pending p
    set attempts = p.attempts + 1,
      last_error = left(coalesce(nullif(p_error, ''), 'no cause given'), 2000),
      process_after = now() + make_interval(secs => power(2, least(p.attempts + 1, 10))),
      claim = null, claimed_at = null, claimed_by = null, lease_until = null
    where p.subscription = any (array(select s.id from deed.subscriptions s where s.door or s.door_until > clock_timestamp()))
      and p.id = p_event_id and p.claimed_by = p_processor_id
      and p.key_hash is null; -- else a stream has put it aside
    if found then
      return;
    end if;
    insert into deed.receipts (subscription, claim, worker, finished_at, ids, finished, failed, lost)
    values (0, 0, p_processor_id, clock_timestamp(), '{}', 0, 0, 1);
  end if;
  raise warning 'complete_outbox_event: event % is not claimed by % (any more); nothing was changed', p_event_id, p_processor_id;
end
$$;
