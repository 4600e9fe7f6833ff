-- deed.unsubscribe: somebody wants no more of what a delivery was for, says the link in its
-- headers (RFC 8058); in the caller's transaction (D11).
--
-- The contact that the link names revokes its consent for the purpose (deed.set_consents), which
-- suppresses its addresses, and once more where one of them is not suppressed any more; merged, it means the one it was merged into. The delivery's
-- recipient is suppressed for the purpose, unless it is one of those addresses: that needs the
-- delivery, whose channel and purpose must be the link's. It stands beside the delivery, and is told, as
-- what a provider says of it does (D13), once: a run's report counts it. Of one who was erased, or is being so,
-- nothing is written. Returns now, before where that held already, or nobody where neither is
-- known any more. Raises DDARG, DDTEN, DDNFD, DDCON for a tenant that was removed, and 40001
-- where the contact is merged meanwhile.
create or replace function deed.unsubscribe(
  p_delivery uuid,
  p_channel  text,
  p_purpose  text,
  p_contact  uuid default null,
  p_tenant   uuid default null,
  p_actor    text default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan -- where plans were made while there was nobody, they read tables whole
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_tenant  uuid := deed.tenant_of_call('unsubscribe', p_tenant);
  v_now     timestamptz := clock_timestamp();
  v_root    uuid;
  v_erased  boolean;
  v_address text;
  v_run     uuid;
  v_did     text := 'nobody';
begin
  if (p_purpose ~ '^[A-Za-z0-9._-]{1,100}$') is not true then
    raise exception 'unsubscribe: purpose must be 1 to 100 characters of A-Z a-z 0-9 . _ -' using errcode = 'DDARG';
  end if;
  v_root := case when p_contact is not null then deed.contact_of(v_tenant, p_contact) end;
  if v_root is not null then
    -- As deed.set_consents does; so one of two at once finds the other's word.
    select c.erased_at is not null into v_erased from deed.contacts c where c.id = v_root for no key update;
    if deed.contact_of(v_tenant, p_contact) is distinct from v_root then
      raise exception 'unsubscribe: the contact has been merged, or taken from another, meanwhile' using errcode = '40001';
    end if;
    if v_erased then
      return 'nobody';
    end if;
    v_did := 'before';
  end if;
  select deed.fold_address(c.channel, c.recipient), c.run_id into v_address, v_run
  from deed.channel_outbox c
  where c.id = p_delivery and c.tenant_id = v_tenant and c.channel = p_channel and c.purpose = p_purpose and c.erased_at is null
    and not deed.is_being_erased(c.tenant_id, c.channel, c.recipient, c.created_at);
  -- Before suppressions, as deed.apply_events does, and against who takes it away with what was said of it. That somebody leaves does not
  -- wait for who keeps the delivery locked: then it is not counted.
  perform from deed.channel_outbox c where c.id = p_delivery and v_address is not null for no key update skip locked;
  if found then
    perform deed.tell_feedback(array[p_delivery], array[p_delivery], array['unsubscribed'], array[v_now], array[null::text], array[null::text]);
    insert into deed.delivery_feedback as f (delivery_id, tenant_id, run_id, unsubscribed_at)
    values (p_delivery, v_tenant, v_run, v_now)
    on conflict on constraint delivery_feedback_pkey do update
    set unsubscribed_at = excluded.unsubscribed_at
    where (f.unsubscribed_at <= excluded.unsubscribed_at) is not true;
  end if;
  if v_root is not null and (
      not exists (select from deed.consents_of(array[v_root]) s where s.channel = p_channel and s.purpose = p_purpose and s.state = 'revoked')
      -- What stood for it somebody has lifted by hand.
      or exists (
        select from deed.known_addresses(array(select deed.names_of(v_root))) a
        where a.channel = p_channel and a.address is not null and not exists (select from deed.suppressed(v_tenant, p_channel, a.address, p_purpose, v_now))
      )
    )
  then
    perform deed.set_consents(array[v_root], array[p_channel], array[p_purpose], array['revoked'], array['list-unsubscribe'],
      array[jsonb_build_object('delivery', p_delivery)], v_tenant, p_actor);
    v_did := 'now';
  end if;
  if v_address is null or v_root is not null and exists (
    select from deed.known_addresses(array(select deed.names_of(v_root))) a where a.channel = p_channel and a.address = v_address
  ) then
    return v_did;
  end if;
  if exists (select from deed.suppressed(v_tenant, p_channel, v_address, p_purpose, v_now)) then
    return case v_did when 'now' then 'now' else 'before' end;
  end if;
  perform deed.suppress(p_channel, array[v_address], format('unsubscribed: delivery %s', p_delivery), p_actor, v_tenant, p_purpose);
  return 'now';
end
$$;
