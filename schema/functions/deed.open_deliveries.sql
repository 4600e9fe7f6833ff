-- deed.open_deliveries: what has not ended of a tenant's deliveries to contacts, by their
-- ids or, where addresses are given, by one of these; for deed.erase_contact.
--
-- It reads what is open, whoever's, and nothing of what has ended, however long the ledger
-- is: addresses are in no index. p_addresses are as addresses are compared
-- (deed.fold_address), each of the channel at its place.
create or replace function deed.open_deliveries(
  p_tenant    uuid,
  p_contacts  uuid[],
  p_channels  text[],
  p_addresses text[]
) returns uuid[]
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
  select coalesce(array_agg(distinct o.id), '{}')
  from (
    select c.id from deed.channel_outbox c
    where c.contact_id = any (p_contacts) and c.tenant_id = p_tenant and c.status in ('queued', 'sending')
    union all
    select c.id
    from (
      -- An index each.
      select q.id, q.tenant_id, q.channel, q.recipient, q.cc from deed.channel_outbox q where q.status = 'queued' and q.due
      union all
      select q.id, q.tenant_id, q.channel, q.recipient, q.cc from deed.channel_outbox q where q.status = 'queued' and not q.due
      union all
      select q.id, q.tenant_id, q.channel, q.recipient, q.cc from deed.channel_outbox q where q.status = 'sending'
    ) c
    where p_addresses <> '{}' and c.tenant_id = p_tenant
      and exists (
        select from unnest(p_channels, p_addresses) a(channel, address)
        where a.channel = c.channel and (a.address = coalesce(deed.fold_address(c.channel, c.recipient), lower(btrim(c.recipient))) or a.address = any (c.cc))
      )
  ) o
$$;
