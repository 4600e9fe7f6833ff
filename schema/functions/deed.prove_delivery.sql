-- deed.prove_delivery: settle a delivery by proof that the provider accepted it,
-- as a later event that carries its id brings.
--
-- Of one that is sending, in doubt or held or not, and of one that has been
-- called and was put back to queued: it is not called again, and what comes of a
-- call that is under way beside the one that was proved is kept. One that was called
-- and has ended otherwise stays as it is, and so does what was said to be done;
-- the proof is kept with it (proved_at, deed.delivery_attempts), and nobody
-- retries it any more. Returns whether the proof ended it and, where the audit log
-- tells of it, what it was and is.
create or replace function deed.prove_delivery(
  p_id         uuid,
  p_message_id text,
  p_actor      text
) returns table (ended boolean, was text, status text, tenant_id uuid, provider text, channel text, attempts int, correlation_id text, channel_message_id uuid)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_was text;
  v_row deed.channel_outbox%rowtype;
begin
  select c.status into v_was
  from deed.channel_outbox c
  where c.id = p_id and c.first_called_at is not null and c.status not in ('sent', 'called', 'posted')
  for update;
  ended := false;
  if not found then
    return next;
    return;
  end if;
  insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, outcome, late, at, worker, provider_message_id)
  select c.id, c.tenant_id, 0, 0, 'proved', true, v_now, coalesce(nullif(left(p_actor, 200), ''), session_user),
    case when c.erased_at is null then left(nullif(p_message_id, ''), 500) else deed.erased_message_id(left(nullif(p_message_id, ''), 500)) end
  from deed.channel_outbox c where c.id = p_id
  on conflict do nothing;
  if v_was not in ('queued', 'sending') then
    update deed.channel_outbox c set proved_at = v_now, updated_at = v_now
    where c.id = p_id and c.proved_at is null
    returning c.* into v_row;
    if found then
      insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
      values (v_row.tenant_id, v_row.run_id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'proof', 'delivery', p_id::text, v_was, v_was,
        'the provider said that it had accepted it; it stays as it was');
    else
      v_was := null;
    end if;
  else
    update deed.channel_outbox c
    set status = case c.channel when 'voice' then 'called' when 'social' then 'posted' else 'sent' end,
      provider_message_id = coalesce(left(nullif(p_message_id, ''), 500), c.provider_message_id),
      sent_at = v_now, finished_at = v_now, doubt_since = null, doubt_reason = null, held_at = null,
      process_after = null, claimed_at = null, claimed_by = null, lease_until = null, updated_at = v_now,
      -- Of what was put back in doubt it may be an earlier call that is proved: who is calling it once more is late from
      -- now on, or what comes of that would be taken for settled under its claim. Of any other it is that very call, of
      -- which services often say so before they answer.
      claim = case when c.unsettled_since is null then c.claim end,
      -- As deed.settle.
      request = case when c.run_id is null then c.request end,
      request_sha256 = case when c.run_id is not null and c.request is not null then sha256(c.request) else c.request_sha256 end
    where c.id = p_id
    returning c.* into v_row;
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
    values (v_row.tenant_id, v_row.run_id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'reconcile', 'delivery', p_id::text, v_was, v_row.status,
      'the provider said so');
    ended := true;
  end if;
  return query select ended, v_was, v_row.status, v_row.tenant_id, v_row.provider, v_row.channel, v_row.attempts, v_row.correlation_id, v_row.channel_message_id;
end
$$;
