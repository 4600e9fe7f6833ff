-- deed.erase_contact: forget somebody; an operator's act, in the caller's transaction
-- (D12). There is no way back.
--
-- The contact, and all that were merged into it, lose their data and what they are
-- known by. What is queued for them is skipped, and what is in doubt has failed, unless it is
-- in somebody's hand (deed.erase_deliveries), which the caller's transaction would hold up for as long
-- as it is open; deed.erase_step, which a relay calls, empties what had ended, and what was in hand
-- once it is not: it is not begun, nor repeated, from the commit on (deed.attempt, deed.may_repeat). Their
-- What they wrote to us is emptied (deed.erase_messages). Their
-- suppressions go on under marks (deed.address_mark), and so does what was suppressed for what became of a delivery to them, wherever it went; with p_suppress nothing at all
-- is sent to their addresses any more, whoever brings them back. p_exported says that
-- the caller has it from a record of erasures, which needs it no second time, and that it
-- may be one of many: what is queued for their addresses, and does not name them, is skipped
-- by deed.erase_step.
-- Who is in an audience by one of their addresses has none there any more, whoever's place it is.
--
-- Returns the erasure's number, the first one's if it was erased before. Raises DDARG
-- without a reason, DDNFD, DDTEN, and 40001 if it has been merged, or one of
-- its addresses has come into an audience, meanwhile.
create or replace function deed.erase_contact(
  p_id       uuid,
  p_reason   text,
  p_actor    text default null,
  p_tenant   uuid default null,
  p_suppress boolean default false,
  p_exported boolean default false
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_tenant    uuid := deed.tenant_of_call('erase_contact', p_tenant);
  v_actor     text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_now       timestamptz := clock_timestamp();
  v_root      uuid := deed.contact_of(v_tenant, p_id);
  v_names     uuid[];
  v_channels  text[];
  v_addresses text[];
  v_marks     text[];
  v_others    uuid[]; -- contacts whose place in an audience has an address of this one's
  v_n         bigint;
  v_ids       uuid[];
  v_ended     bigint;
  v_xid       bigint; -- whoever has a lower one is waited for
  v_low       bigint; -- of it the lower half
begin
  if coalesce(length(btrim(p_reason)), 0) not between 1 and 2000 then
    raise exception 'erase_contact: a reason of 1 to 2000 characters is needed' using errcode = 'DDARG';
  end if;
  if v_root is null then
    raise exception 'erase_contact: there is no contact %', p_id using errcode = 'DDNFD';
  end if;
  -- Against those who reserve for it (deed.reserve) and who give it identities
  -- (deed.upsert_contacts); in the order of merges.
  v_names := array(select n from deed.names_of(v_root) n order by n);
  -- And against who expands an audience (deed.expand_job) in which another's place has their address.
  v_others := array(
    select m.contact_id
    from (select array_agg(k.channel) as channels, array_agg(k.address) as addresses from deed.known_addresses(v_names) k where k.address is not null) a
    cross join lateral deed.members_at(v_tenant, a.channels, a.addresses) m
  );
  perform from (select c.id from deed.contacts c where c.id = any (v_names || v_others) order by c.id for update) locked;
  if deed.contact_of(v_tenant, p_id) is distinct from v_root or v_names is distinct from array(select n from deed.names_of(v_root) n order by n) then
    raise exception 'erase_contact: the contact has been merged, or taken from another, meanwhile' using errcode = '40001';
  end if;
  select e.n into v_n from deed.erasures e where e.contact_id = v_root;
  if found then
    return v_n;
  end if;
  v_now := clock_timestamp();
  perform deed.take_back_messages(v_names);
  select coalesce(array_agg(a.channel), '{}'), coalesce(array_agg(a.address), '{}'), coalesce(array_agg(deed.address_mark(v_tenant, a.channel, a.address)), '{}')
  into v_channels, v_addresses, v_marks
  from (select distinct k.channel, k.address from deed.known_addresses(v_names) k where k.address is not null) a;
  if exists (select from deed.members_at(v_tenant, v_channels, v_addresses) m where m.contact_id <> all (v_names || v_others)) then
    raise exception 'erase_contact: one of the contact''s addresses has come into an audience, or to the contact, meanwhile' using errcode = '40001';
  end if;

  -- Before deed.erase_deliveries, which asks whose they are.
  update deed.contacts c
  set data = '{}', zone = null, locale = null, erased_at = v_now, updated_at = v_now
  where c.id = any (v_names);
  -- Of many that are repeated, deed.erase_step looks for the addresses of all at once; until
  -- then nobody is called for them (deed.is_being_erased).
  v_ids := deed.open_deliveries(v_tenant, v_names, v_channels, case when p_exported then '{}' else v_addresses end);
  select count(*) into v_ended from deed.erase_deliveries(v_ids, v_actor, false) d where d.did <> 'left';

  -- Deliveries first and suppressions then, as who settles them or records events has it.
  perform deed.mark_suppressions(v_tenant, v_channels, v_addresses, v_marks, v_actor, p_contact => v_root);
  if p_suppress then
    with added as (
      insert into deed.suppressions as s (tenant_id, channel, address, purpose, reason, actor, created_at)
      select v_tenant, u.channel, u.mark, '', 'erased', v_actor, v_now
      from unnest(v_channels, v_marks) u(channel, mark)
      order by u.channel, u.mark
      on conflict on constraint suppressions_pkey do update
      set expires_at = null
      where s.expires_at is not null
      returning xmax = 0 as is_new
    )
    insert into deed.audit_log (tenant_id, actor, action, subject_type, reason, affected)
    select v_tenant, v_actor, 'suppress', 'suppression', 'erased', count(*) from added a where a.is_new having count(*) > 0;
  end if;

  perform deed.erase_messages(v_names, v_actor);
  delete from deed.soft_bounces s
  using unnest(v_channels, v_addresses) a(channel, address)
  where s.tenant_id = v_tenant and s.channel = a.channel and s.address = a.address;
  delete from deed.contact_identities i where i.contact_id = any (v_names);
  update deed.audience_members m
  set address = null, zone = null, data = '{}'
  where m.contact_id = any (v_names) and (num_nonnulls(m.address, m.zone) > 0 or m.data <> '{}');
  update deed.audience_members m
  set address = null, zone = null, data = '{}'
  from deed.members_at(v_tenant, v_channels, v_addresses) k
  where m.audience_id = k.audience_id and m.n = k.n;
  update deed.consents e set evidence = '{}' where e.contact_id = any (v_names) and e.evidence <> '{}';
  update deed.contact_merges m
  set reason = 'erased', undone_for = case when m.undone_for is not null then 'erased' end
  where m.from_id = any (v_names) or m.into_id = any (v_names);
  update deed.audit_log a
  set reason = 'erased'
  where a.subject_type = 'contact' and a.subject_id = any (array(select u.id::text from unnest(v_names) u(id))) and a.reason <> 'erased';
  -- A merge stands in the log under each of the two, and names the other.
  update deed.audit_log a
  set reason = 'erased'
  where a.subject_type = 'contact' and a.subject_id = any (array(
      select m.from_id::text from deed.contact_merges m where m.into_id = any (v_names)
      union
      select m.into_id::text from deed.contact_merges m where m.from_id = any (v_names)
    ))
    and a.action in ('merge', 'unmerge') and coalesce(a.details ->> 'into', a.details ->> 'from') = any (array(select u.id::text from unnest(v_names) u(id))) and a.reason <> 'erased';
  update deed.identity_conflicts o set settled_at = v_now where o.tenant_id = v_tenant and o.settled_at is null and o.contact_ids && v_names;

  v_xid := pg_current_xact_id()::text::bigint;
  begin
    -- In a subtransaction, which gets an id of its own now: whoever has reserved before has a lower one. The transaction's own may be
    -- from long before.
    insert into deed.erasures (tenant_id, contact_id, names, reason, actor, at, deliveries, exported_at, suppressed)
    values (v_tenant, v_root, v_names, p_reason, v_actor, v_now, v_ended, case when p_exported then v_now end, coalesce(p_suppress, false))
    returning n, xmin::text::bigint into v_n, v_low;
  exception when unique_violation then
    raise;
  end;
  v_xid := v_xid + ((v_low - v_xid) & 4294967295); -- ids of rows have 32 bits
  insert into deed.erasing (n, xid, channels, addresses) values (v_n, v_xid::text::xid8, v_channels, v_addresses);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
  values (v_tenant, v_actor, 'erase', 'contact', v_root::text, p_reason, jsonb_build_object('names', cardinality(v_names), 'deliveries', v_ended));
  return v_n;
end
$$;
