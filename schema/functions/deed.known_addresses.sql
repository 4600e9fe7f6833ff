-- deed.known_addresses: by which addresses of which channels contacts are written to, as
-- addresses are compared (deed.fold_address); their own, not those of other names. A user
-- of Slack without a team is nobody's: another team may have one of the same id.
create or replace function deed.known_addresses(p_contacts uuid[]) returns table (contact_id uuid, channel text, address text)
language sql
stable
begin atomic
  select i.contact_id, c.channel, deed.fold_address(c.channel, i.value)
  from deed.contact_identities i
  join (values
    ('email', 'email'), ('phone', 'sms'), ('phone', 'voice'), ('telegram', 'chat'), ('whatsapp', 'chat'), ('whatsapp_user', 'chat'), ('slack', 'chat'),
    ('chat', 'chat'), ('mastodon', 'social'), ('bluesky', 'social'), ('account', 'social') -- chat and account: of who is a member of an audience (deed.add_audience_members)
  ) c(type, channel) on c.type = i.type
  where i.contact_id = any (p_contacts) and (i.type <> 'slack' or i.value like '%_:_%');
end;
