-- breaking: no
-- A destination is paused for the tenant whose deliveries met it: what one makes of
-- a host holds up no other there.

-- tenant_id: whose deliveries to the destination are left alone. The provider's own
-- pause is everybody's, under the id of the default tenant.
--
-- Of the destinations' pauses nobody can tell whose they were: what is still down
-- is paused again by the next calls.
delete from deed.pauses where destination <> '';
alter table deed.pauses add column tenant_id uuid not null default '00000000-0000-0000-0000-000000000000';
alter table deed.pauses
  drop constraint pauses_pkey,
  add constraint pauses_pkey primary key (provider, destination, tenant_id),
  add constraint pauses_of_provider_is_everybodys check (destination <> '' or tenant_id = '00000000-0000-0000-0000-000000000000');

-- Replaced by ones with more arguments or results.
drop function if exists deed.pause(text, uuid[], bigint[], text[], text[], float8[], boolean[], interval, float8[], interval);
drop function if exists deed.pause_allows(text, text);
drop function if exists deed.take_probe(text, text, uuid, bigint);
