-- deed.erase_messages: empty what contacts have written, who are erased in the same
-- transaction (D12): sender, address, text, body and error, and WhatsApp's message ids. What was waiting to be run is
-- denied; what is being run goes on, and is not run again.
create or replace function deed.erase_messages(
  p_contacts uuid[],
  p_actor    text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_tenants uuid[];
  v_sources text[];
  v_kinds   text[];
  v_senders text[];
begin
  select array_agg(l.tenant_id), array_agg(l.source), array_agg(l.kind), array_agg(l.sender) into v_tenants, v_sources, v_kinds, v_senders
  from (
    select m.tenant_id, m.source, m.kind, m.sender from deed.channel_messages m where m.contact_id = any (p_contacts) order by m.id for update
  ) l;
  with ended as (
    update deed.channel_messages m
    set status = 'denied_erased', lease_until = null, process_after = null, held_at = null, finished_at = v_now
    from deed.channel_messages o
    where m.contact_id = any (p_contacts) and o.id = m.id
      and (m.status = 'dispatch_failed' or (m.status = 'accepted' and (m.lease_until <= v_now or m.lease_until = 'infinity')))
    returning m.id, m.tenant_id, o.status as was
  )
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
  select e.tenant_id, p_actor, 'erase', 'channel_message', case when count(*) = 1 then min(e.id::text) end, e.was, 'denied_erased', 'erased', count(*),
    case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(e.id)) end
  from ended e
  group by e.tenant_id, e.was;
  update deed.channel_messages m
  set platform_message_id = deed.erased_message_id(m.platform_message_id), sender = m.id::text, reply_to = null, text = null, body = null, emptied_at = coalesce(m.emptied_at, v_now),
    error = case when m.error is not null then 'erased' end
  where m.contact_id = any (p_contacts);
  -- Where somebody else writes from the same address.
  perform deed.pass_turns(v_tenants, v_sources, v_kinds, v_senders);
  update deed.audit_log a
  set reason = 'erased'
  where a.subject_type = 'channel_message' and a.reason <> 'erased'
    and a.subject_id = any (array(select m.id::text from deed.channel_messages m where m.contact_id = any (p_contacts)));
end
$$;
