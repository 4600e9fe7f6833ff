-- deed.confirm_consent: what a contact was asked for is granted, since somebody has
-- come back by the way that only its address was given (double opt-in).
--
-- Returns false if it was granted already. Raises DDARG, DDNFD where nothing was
-- asked, DDCON where the seven days are over or it was revoked since, or the contact
-- was erased, DDTEN.
create or replace function deed.confirm_consent(
  p_contact  uuid,
  p_channel  text,
  p_purpose  text,
  p_evidence jsonb default null,
  p_tenant   uuid default null,
  p_actor    text default null
) returns boolean
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
  v_tenant uuid := deed.tenant_of_call('confirm_consent', p_tenant);
  v_root   uuid := deed.contact_of(v_tenant, p_contact);
  v_asked  record;
  v_state  text;
begin
  if v_root is null then
    raise exception 'confirm_consent: there is no contact %', p_contact using errcode = 'DDNFD';
  end if;
  perform from deed.contacts c where c.id = v_root for no key update;
  if deed.contact_of(v_tenant, p_contact) is distinct from v_root then
    raise exception 'confirm_consent: the contact has been merged, or taken from another, meanwhile' using errcode = '40001';
  end if;
  select e.n, e.expires_at into v_asked
  from deed.consents e
  where e.contact_id = any (array(select deed.names_of(v_root))) and e.channel = p_channel and e.purpose = p_purpose and e.state = 'pending'
  order by e.n desc
  limit 1;
  if not found then
    raise exception 'confirm_consent: nobody has asked the contact for it' using errcode = 'DDNFD';
  end if;
  select s.state into v_state
  from deed.consents_of(array[v_root]) s
  where s.channel = p_channel and s.purpose = p_purpose;
  if v_state = 'granted' then
    return false;
  elsif v_asked.expires_at <= clock_timestamp() then
    raise exception 'confirm_consent: it was to be confirmed within seven days, which are over' using errcode = 'DDCON', hint = 'Ask anew.';
  elsif exists (
    select from deed.consents e
    where e.contact_id = any (array(select deed.names_of(v_root))) and e.channel = p_channel and e.purpose = p_purpose and e.state = 'revoked' and e.n > v_asked.n
  ) then
    raise exception 'confirm_consent: it has been revoked since it was asked for' using errcode = 'DDCON', hint = 'Ask anew.';
  end if;
  perform deed.set_consents(array[v_root], array[p_channel], array[p_purpose], array['granted'], array['confirmed'], array[coalesce(p_evidence, '{}')], v_tenant, p_actor);
  return true;
end
$$;
