-- deed.set_consents: note what contacts agree to, in the caller's transaction: granted,
-- revoked, or pending, which is to be confirmed within seven days
-- (deed.confirm_consent).
--
-- The arrays have one entry a consent; p_evidence null: none. What is revoked is
-- suppressed for all of the contact's addresses of the channel, in the same
-- transaction, and for those that it gets later; a grant lifts what stands for a
-- consent alone. Words of one call are said in its order. A contact that was merged
-- means the one it was merged into. Each is kept, also if it says what was said before.
-- Returns for each, n counting from 1, what holds by now. Raises DDARG, DDNFD for
-- a contact that the tenant does not have, DDCON for one that was erased, DDTEN.
create or replace function deed.set_consents(
  p_contacts uuid[],
  p_channels text[],
  p_purposes text[],
  p_states   text[],
  p_sources  text[],
  p_evidence jsonb[] default null,
  p_tenant   uuid default null,
  p_actor    text default null
) returns table (n int, contact_id uuid, state text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_tenant uuid := deed.tenant_of_call('set_consents', p_tenant);
  v_actor  text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_count  int := coalesce(cardinality(p_contacts), 0);
  v_now    timestamptz := clock_timestamp();
  v_means  uuid[];
  v_roots  uuid[];
  v_bad    record;
begin
  if v_count = 0 then
    return;
  end if;
  if exists (
    select from unnest(array[
      array_dims(p_contacts), coalesce(array_dims(p_channels), ''), coalesce(array_dims(p_purposes), ''), coalesce(array_dims(p_states), ''),
      coalesce(array_dims(p_sources), ''), array_dims(p_evidence)
    ]) d
    where d <> format('[1:%s]', v_count)
  ) then
    raise exception 'set_consents: the arrays must have one entry a consent each, one dimension, and count from 1 (% contacts)', v_count using errcode = 'DDARG';
  end if;
  select b.i, b.problem into v_bad
  from (
    select i, case
        when p_contacts[i] is null then 'contact is null'
        when (p_channels[i] in ('email', 'sms', 'voice', 'social', 'chat', 'webhook')) is not true then 'channel must be email, sms, voice, social, chat or webhook'
        when (p_purposes[i] ~ '^[A-Za-z0-9._-]{1,100}$') is not true then 'purpose must be 1 to 100 characters of A-Z a-z 0-9 . _ -'
        when (p_states[i] in ('granted', 'revoked', 'pending')) is not true then 'state must be granted, revoked or pending'
        when (length(p_sources[i]) between 1 and 200) is not true then 'source, which is where it was said, must have 1 to 200 characters'
        when jsonb_typeof(p_evidence[i]) <> 'object' or pg_column_size(p_evidence[i]) > 8192 then 'evidence must be a JSON object of up to 8 KiB'
        when jsonb_path_exists(p_evidence[i], 'strict $.** ? (@.type() == "number")') and deed.json_digits(p_evidence[i]) > 8192
          then 'evidence has numbers with so many digits that they are over the limit of 8192 bytes'
      end as problem
    from generate_series(1, v_count) i
  ) b
  where b.problem is not null
  order by b.i
  limit 1;
  if found then
    raise exception 'set_consents: consent %: %', v_bad.i, v_bad.problem using errcode = 'DDARG';
  end if;

  v_means := array(select deed.contact_of(v_tenant, p_contacts[i]) from generate_series(1, v_count) i);
  select i into v_bad from generate_series(1, v_count) i where v_means[i] is null limit 1;
  if found then
    raise exception 'set_consents: there is no contact %', p_contacts[v_bad.i] using errcode = 'DDNFD';
  end if;
  v_roots := array(select distinct r from unnest(v_means) r order by r);
  -- In the order of their ids, as in deed.merge_contacts. What they are changes, for
  -- those whose transaction began before.
  perform from (select c.id from deed.contacts c where c.id = any (v_roots) order by c.id for no key update) locked;
  if v_means <> array(select deed.contact_of(v_tenant, p_contacts[i]) from generate_series(1, v_count) i) then
    raise exception 'set_consents: one of the contacts has been merged, or taken from another, meanwhile' using errcode = '40001';
  end if;
  select c.id into v_bad from deed.contacts c where c.id = any (v_roots) and c.erased_at is not null limit 1;
  if found then
    raise exception 'set_consents: contact % has been erased', v_bad.id using errcode = 'DDCON';
  end if;
  update deed.contacts c set updated_at = v_now where c.id = any (v_roots);
  -- A foreign key's look at each row is planned once, and not for each row.
  perform set_config('plan_cache_mode', 'auto', true);
  insert into deed.consents (tenant_id, contact_id, channel, purpose, state, source, evidence, actor, at, expires_at)
  select v_tenant, v_means[i], p_channels[i], p_purposes[i], p_states[i], p_sources[i], coalesce(p_evidence[i], '{}'), v_actor, v_now,
    case when p_states[i] = 'pending' then v_now + interval '7 days' end
  from generate_series(1, v_count) i
  order by i;
  perform set_config('plan_cache_mode', 'force_custom_plan', true);
  perform deed.apply_consents(v_tenant, v_roots, v_actor);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, affected, details)
  select v_tenant, v_actor, 'consent', 'contact', case when v_count = 1 then v_means[1]::text end, v_count,
    case when v_count = 1 then jsonb_build_object('channel', p_channels[1], 'purpose', p_purposes[1], 'state', p_states[1], 'source', p_sources[1])
      else jsonb_build_object(
        'granted', cardinality(array_positions(p_states, 'granted')), 'revoked', cardinality(array_positions(p_states, 'revoked')),
        'pending', cardinality(array_positions(p_states, 'pending'))) end;
  return query
  select i, v_means[i], s.state
  from generate_series(1, v_count) i
  left join deed.consents_of(v_roots) s on s.contact_id = v_means[i] and s.channel = p_channels[i] and s.purpose = p_purposes[i]
  order by i;
end
$$;
