-- deed.merge_contacts: say that two contacts are one person; an operator's act.
--
-- p_from becomes another name of p_into and keeps what it has, so that
-- deed.unmerge_contacts takes them apart as they were. What has been merged into
-- either comes along. Where they consent to different things, a revocation wins until a
-- later grant (deed.consents_of), and is suppressed for the addresses of both. A
-- conflict about the two is settled. Returns false if they were one already. Raises DDARG without a reason, and where
-- together they would have over 100 identities, DDNFD for a contact that the tenant does
-- not have, DDCON for one that was erased, DDTEN.
create or replace function deed.merge_contacts(
  p_from   uuid,
  p_into   uuid,
  p_reason text,
  p_actor  text default null,
  p_tenant uuid default null
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
  v_tenant uuid := deed.tenant_of_call('merge_contacts', p_tenant);
  v_actor  text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_from   uuid;
  v_into   uuid;
  v_erased uuid;
begin
  if coalesce(length(btrim(p_reason)), 0) not between 1 and 2000 then
    raise exception 'merge_contacts: a reason of 1 to 2000 characters is needed' using errcode = 'DDARG';
  end if;
  v_from := deed.contact_of(v_tenant, p_from);
  v_into := deed.contact_of(v_tenant, p_into);
  if v_from is null or v_into is null then
    raise exception 'merge_contacts: there is no contact %', case when v_from is null then p_from else p_into end using errcode = 'DDNFD';
  end if;
  -- In the order of their ids, so that two callers wait for each other or not at all;
  -- then what they mean by now.
  perform from (select c.id from deed.contacts c where c.id in (v_from, v_into) order by c.id for no key update) locked;
  if (deed.contact_of(v_tenant, p_from), deed.contact_of(v_tenant, p_into)) is distinct from (v_from, v_into) then
    if deed.contact_of(v_tenant, p_from) = deed.contact_of(v_tenant, p_into) then
      return false;
    end if;
    raise exception 'merge_contacts: one of the contacts has been merged, or taken from another, meanwhile' using errcode = '40001';
  end if;
  if v_from = v_into then
    return false;
  end if;
  select c.id into v_erased from deed.contacts c where c.id in (v_from, v_into) and c.erased_at is not null limit 1;
  if found then
    raise exception 'merge_contacts: contact % has been erased', v_erased using errcode = 'DDCON';
  end if;
  if 100 < (select count(*) from (select deed.names_of(v_from) union all select deed.names_of(v_into)) m(id) join deed.contact_identities i on i.contact_id = m.id) then
    raise exception 'merge_contacts: together they would have over 100 identities' using errcode = 'DDARG';
  end if;
  update deed.contacts c
  set merged_into = case when c.id = v_from then v_into end, updated_at = clock_timestamp()
  where c.id in (v_from, v_into);
  insert into deed.contact_merges (tenant_id, from_id, into_id, reason, actor, at)
  values (v_tenant, v_from, v_into, p_reason, v_actor, clock_timestamp());
  perform deed.apply_consents(v_tenant, array[v_into], v_actor);
  update deed.identity_conflicts o
  set settled_at = clock_timestamp()
  where o.tenant_id = v_tenant and o.settled_at is null and o.contact_ids <@ array(select deed.names_of(v_into));
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, details)
  values (v_tenant, v_actor, 'merge', 'contact', v_from::text, p_reason, jsonb_build_object('into', v_into)),
    (v_tenant, v_actor, 'merge', 'contact', v_into::text, p_reason, jsonb_build_object('from', v_from)); -- the history of each names it
  return true;
end
$$;
