-- deed.prove_delivery: settle a delivery by proof that the provider accepted it,
-- as a later event that carries its id brings.
--
-- Of one that is sending, in doubt or held or not, and of one that has been
-- called and was put back to queued: it is not called again. Returns whether
-- that ended it; of one that is finished already it changes nothing.
create or replace function deed.prove_delivery(
  p_id         uuid,
  p_message_id text,
  p_actor      text
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_was text;
  v_row record;
begin
  select c.status into v_was
  from deed.channel_outbox c
  where c.id = p_id and (c.status = 'sending' or (c.status = 'queued' and c.first_called_at is not null))
  for update;
  if not found then
    return false;
  end if;
  update deed.channel_outbox c
  set status = case c.channel when 'voice' then 'called' when 'social' then 'posted' else 'sent' end,
    provider_message_id = coalesce(left(nullif(p_message_id, ''), 500), c.provider_message_id),
    sent_at = v_now, finished_at = v_now, doubt_since = null, doubt_reason = null, held_at = null,
    process_after = null, claimed_at = null, claimed_by = null, lease_until = null, updated_at = v_now
  where c.id = p_id
  returning c.tenant_id, c.status into v_row;
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
  values (v_row.tenant_id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'reconcile', 'delivery', p_id::text, v_was, v_row.status,
    'the provider said so');
  return true;
end
$$;
