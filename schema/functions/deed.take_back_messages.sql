-- deed.take_back_messages: let what contacts wrote while they were other names of somebody be
-- theirs, and the replies; for deed.erase_contact, which has locked them.
--
-- deed.unmerge_contacts has done so with what it saw; what came while it was under way it did
-- not. Replies that a worker has in hand are left: where they go says whose they are.
create or replace function deed.take_back_messages(p_contacts uuid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_were uuid[]; -- whose names they have been
  v_ids  uuid[];
  v_of   uuid[];
begin
  with recursive were as (
    select m.into_id as id from deed.contact_merges m where m.from_id = any (p_contacts)
    union
    select m.into_id from were w join deed.contact_merges m on m.from_id = w.id
  )
  select array_agg(w.id) into v_were from were w where w.id <> all (p_contacts);
  if v_were is null then
    return;
  end if;
  select array_agg(l.id), array_agg(l.contact_id) into v_ids, v_of
  from (
    select m.id, i.contact_id
    from deed.channel_messages m
    join (select n.contact_id, n.type, n.value from deed.contact_identities n where n.contact_id = any (p_contacts)) i
      on m.kind = i.type and case when i.type = 'email' then lower(m.sender) = lower(i.value) else m.sender = i.value end
    where m.contact_id = any (v_were)
    order by m.id
    for update of m
  ) l;
  update deed.channel_messages m set contact_id = u.contact_id from unnest(v_ids, v_of) u(id, contact_id) where m.id = u.id;
  update deed.channel_outbox c
  set contact_id = u.contact_id
  from unnest(v_ids, v_of) u(id, contact_id)
  where c.channel_message_id = u.id and c.contact_id = any (v_were) and c.lease_until is null;
end
$$;
