-- deed.unmerge_contacts: take apart what deed.merge_contacts has put together; an
-- operator's act.
--
-- p_from is a contact of its own again, with what it had and consented to; what was
-- merged into it before comes along, what it wrote meanwhile too, and what the other one got since stays there. What
-- was revoked since is revoked for both: who of them said so is not known. Returns the
-- one that it was merged into. Raises DDARG without a reason, DDNFD for a contact that the
-- tenant does not have, DDCON for one that was not merged, or erased since, DDTEN, and 40001 while
-- somebody has what it wrote, or a reply to it, in hand: run it again then.
create or replace function deed.unmerge_contacts(
  p_from   uuid,
  p_reason text,
  p_actor  text default null,
  p_tenant uuid default null
) returns uuid
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
  v_tenant  uuid := deed.tenant_of_call('unmerge_contacts', p_tenant);
  v_actor   text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_c       record;
  v_merge   bigint;
  v_root    uuid;
  v_above   uuid[]; -- those that it was another name of
  v_wrote   uuid[]; -- messages,
  v_answers uuid[]; -- their deliveries,
  v_free    bigint; -- and how many of them nobody has in hand
begin
  if coalesce(length(btrim(p_reason)), 0) not between 1 and 2000 then
    raise exception 'unmerge_contacts: a reason of 1 to 2000 characters is needed' using errcode = 'DDARG';
  end if;
  v_root := deed.contact_of(v_tenant, p_from);
  if v_root is null then
    raise exception 'unmerge_contacts: there is no contact %', p_from using errcode = 'DDNFD';
  end if;
  -- In the order of their ids, as in deed.merge_contacts; then what it means by now.
  perform from (select c.id from deed.contacts c where c.id in (p_from, v_root) order by c.id for no key update) locked;
  if deed.contact_of(v_tenant, p_from) <> v_root then
    raise exception 'unmerge_contacts: the contact has been merged, or taken from another, meanwhile' using errcode = '40001';
  end if;
  select c.merged_into, c.erased_at into v_c from deed.contacts c where c.id = p_from;
  if v_c.merged_into is null then
    raise exception 'unmerge_contacts: contact % is merged into no other', p_from using errcode = 'DDCON';
  elsif v_c.erased_at is not null then
    raise exception 'unmerge_contacts: contact % has been erased', p_from using errcode = 'DDCON';
  end if;
  select m.n into v_merge from deed.contact_merges m where m.from_id = p_from and m.undone_at is null;
  with recursive above as ( -- whose words were its own, from which number on
    select v_c.merged_into as id, v_merge as since
    union all
    select c.merged_into, greatest(a.since, m.n)
    from above a
    join deed.contacts c on c.id = a.id and c.merged_into is not null
    join deed.contact_merges m on m.from_id = a.id and m.undone_at is null
  ),
  said as (
    select distinct on (e.channel, e.purpose) e.channel, e.purpose, e.state, e.n
    from above a
    join deed.consents e on e.contact_id = a.id and e.n > a.since
    where e.state <> 'pending'
    order by e.channel, e.purpose, e.n desc
  )
  insert into deed.consents (tenant_id, contact_id, channel, purpose, state, source, evidence, actor, at)
  select v_tenant, p_from, s.channel, s.purpose, 'revoked', 'unmerge', jsonb_build_object('consent', s.n), v_actor, clock_timestamp()
  from said s
  where s.state = 'revoked'
  order by s.channel, s.purpose;
  -- What it wrote meanwhile is its own, and so are the answers.
  with recursive above as (
    select v_c.merged_into as id
    union all
    select c.merged_into from above a join deed.contacts c on c.id = a.id and c.merged_into is not null
  )
  select array_agg(a.id) into v_above from above a;
  v_wrote := array(
    select m.id
    from deed.channel_messages m
    join (select i.type, i.value from deed.names_of(p_from) n(id) join deed.contact_identities i on i.contact_id = n.id) i
      on m.kind = i.type and case when i.type = 'email' then lower(m.sender) = lower(i.value) else m.sender = i.value end
    where m.contact_id = any (v_above)
  );
  v_answers := array(select c.id from deed.channel_outbox c where c.channel_message_id = any (v_wrote) and c.contact_id = any (v_above));
  -- What is in a worker's hand would be held up for as long as the caller's transaction is
  -- open, and with it whatever that worker records at once.
  select count(*) into v_free
  from (
    select m.lease_until from deed.channel_messages m where m.id = any (v_wrote) order by m.id for no key update skip locked
  ) l
  where (l.lease_until > clock_timestamp() and l.lease_until < 'infinity') is not true;
  select v_free + count(*) into v_free
  from (
    select c.lease_until from deed.channel_outbox c where c.id = any (v_answers) order by c.id for no key update skip locked
  ) l
  where (l.lease_until > clock_timestamp()) is not true;
  if v_free < cardinality(v_wrote) + cardinality(v_answers) then
    raise exception 'unmerge_contacts: what contact % wrote is being run or answered', p_from
      using errcode = '40001', hint = 'Run it again in a moment.';
  end if;
  update deed.channel_messages m set contact_id = p_from where m.id = any (v_wrote);
  update deed.channel_outbox c set contact_id = p_from where c.id = any (v_answers);
  update deed.contacts c
  set merged_into = case when c.id = p_from then null else c.merged_into end, updated_at = clock_timestamp()
  where c.id in (p_from, v_root);
  update deed.contact_merges m
  set undone_at = clock_timestamp(), undone_by = v_actor, undone_for = p_reason
  where m.n = v_merge;
  perform deed.apply_consents(v_tenant, array[p_from, v_root], v_actor);
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
  values (v_tenant, v_actor, 'unmerge', 'contact', p_from::text, p_reason, jsonb_build_object('from', v_c.merged_into)),
    (v_tenant, v_actor, 'unmerge', 'contact', v_c.merged_into::text, p_reason, jsonb_build_object('into', p_from)); -- the history of each names it
  return v_c.merged_into;
end
$$;
