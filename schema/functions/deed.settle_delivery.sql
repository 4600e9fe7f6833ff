-- deed.settle_delivery: a person's decision about a delivery in doubt (D5).
--
-- p_decision: sent (with the provider's message id, if there is one), failed,
-- or send_again: it is tried for as long, and taken over as often, as what is new. Its attempts stay, since they
-- number its calls, by which what was accepted twice is found (deed campaign verify).
-- Who and why is recorded, and the call whose lease ran out, where nobody has looked since
-- (deed.claim_doubts). Returns the new status. Raises DDNFD, DDCON for a delivery
-- that is not in doubt, DDARG.
create or replace function deed.settle_delivery(
  p_id         uuid,
  p_decision   text,
  p_reason     text,
  p_actor      text,
  p_message_id text default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_row deed.channel_outbox;
  v_to  text;
begin
  if p_decision is null or p_decision not in ('sent', 'failed', 'send_again') then
    raise exception 'settle_delivery: decision must be sent, failed or send_again' using errcode = 'DDARG';
  end if;
  if coalesce(p_reason, '') = '' or coalesce(p_actor, '') = '' or length(p_actor) > 200 or length(p_reason) > 2000 then
    raise exception 'settle_delivery: a reason and an actor are needed' using errcode = 'DDARG';
  end if;
  select * into v_row from deed.channel_outbox c where c.id = p_id for update;
  if not found then
    raise exception 'settle_delivery: delivery % does not exist', p_id using errcode = 'DDNFD';
  end if;
  if v_row.status <> 'sending' or v_row.lease_until > v_now or (v_row.doubt_since is null and v_row.lease_until is null) then
    raise exception 'settle_delivery: delivery % is not in doubt: it is %', p_id,
      case when v_row.status = 'sending' then 'being called' else v_row.status end using errcode = 'DDCON';
  end if;
  if v_row.lease_until is not null and v_row.called_at >= v_row.claimed_at then
    insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, outcome, sandbox, at, began_at, worker, error)
    values (v_row.id, v_row.tenant_id, v_row.claim, v_row.attempts, 'lost', v_row.sandbox, v_now, v_row.called_at, v_row.claimed_by, 'the lease ran out during the call')
    on conflict do nothing;
  end if;
  v_to := case p_decision
    when 'sent' then case v_row.channel when 'voice' then 'called' when 'social' then 'posted' else 'sent' end
    when 'failed' then 'failed' else 'queued' end;
  update deed.channel_outbox c
  set status = v_to,
    unsettled_since = case when v_to = 'queued' then coalesce(c.unsettled_since, c.doubt_since, v_now) else c.unsettled_since end,
    provider_message_id = coalesce(left(nullif(p_message_id, ''), 500), c.provider_message_id),
    last_error = case when p_decision = 'sent' then c.last_error else left('settled by ' || p_actor || ': ' || p_reason, 4000) end,
    deferrals = case when v_to = 'queued' then 0 else c.deferrals end,
    lost_claims = case when v_to = 'queued' then 0 else c.lost_claims end, -- as deed.mark_due of what was held
    deferred_since = case when v_to <> 'queued' then c.deferred_since end,
    process_after = case when v_to = 'queued' then v_now end, -- as deed.retry_deliveries
    sent_at = case when p_decision = 'sent' then v_now end,
    finished_at = case when v_to <> 'queued' then v_now end,
    doubt_since = null, doubt_reason = null, held_at = null,
    -- As deed.settle.
    request = case when p_decision = 'sent' and c.run_id is not null then null else c.request end,
    request_sha256 = case when p_decision = 'sent' and c.run_id is not null and c.request is not null then sha256(c.request) else c.request_sha256 end,
    claim = case when v_to <> 'queued' then c.claim end, claimed_at = null, claimed_by = null, lease_until = null, updated_at = v_now
  where c.id = p_id;
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason, details)
  values (v_row.tenant_id, v_row.run_id, p_actor, 'settle', 'delivery', p_id::text, 'sending', v_to, p_reason,
    jsonb_strip_nulls(jsonb_build_object('decision', p_decision, 'message_id', deed.erased_message_id(nullif(p_message_id, '')))));
  return v_to;
end
$$;
