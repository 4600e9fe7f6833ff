-- deed.revoked_by_another: whether another contact than p_contact is known by an address, too, and
-- has revoked to be written to over the channel for the purpose (deed.consents_of).
--
-- Chats and accounts are known by several types, each with letters of its own, and one address may be a value
-- of several of them: a number is known as whatsapp and as chat, somebody in Slack in capitals and, of an
-- audience, in small letters. It is looked for as addresses are compared, in capitals, with the + that a number
-- may have, and as p_contact has it; in other letters no index finds it. p_contact was merged into no other. For
-- deed.apply_consents, of what is about to be lifted.
create or replace function deed.revoked_by_another(
  p_tenant  uuid,
  p_contact uuid,
  p_channel text,
  p_address text,
  p_purpose text
) returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_types  text[] := case p_channel
    when 'chat' then array['telegram', 'whatsapp', 'whatsapp_user', 'slack', 'chat']
    when 'social' then array['mastodon', 'bluesky', 'account'] end;
  v_values text[];
begin
  if v_types is null then -- where one address is one identity
    return false;
  end if;
  v_values := array[p_address, upper(p_address), '+' || p_address] || array(
    select i.value
    from deed.names_of(p_contact) m(id)
    cross join lateral (
      select o.value from deed.contact_identities o where o.contact_id = m.id and o.type = any (v_types) offset 0
    ) i
    where deed.fold_address(p_channel, i.value) = p_address
  );
  return exists (
    select from deed.consents_of(array(
      select distinct k.means
      from unnest(v_types) t(type)
      cross join (select distinct v from unnest(v_values) v) v(value)
      cross join lateral deed.known_as(p_tenant, t.type, v.value) k
      where k.means <> p_contact and (t.type <> 'slack' or v.value like '%_:_%') -- as deed.known_addresses has it
    )) s
    where s.channel = p_channel and s.purpose = p_purpose and s.state = 'revoked'
  );
end
$$;
