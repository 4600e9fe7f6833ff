-- breaking: no
-- What a provider carries: its channels, and the tenants whose deliveries alone it makes; null: it is not known, as of
-- providers that an earlier version has registered, or, of tenants, that it makes everybody's.
alter table deed.providers
  add column channels text[],
  add column tenants uuid[],
  add constraint providers_channels_are_some check (array_position(channels, null) is null and cardinality(channels) > 0) not valid,
  add constraint providers_tenants_are_some check (array_position(tenants, null) is null and cardinality(tenants) > 0) not valid;
alter table deed.providers validate constraint providers_channels_are_some;
alter table deed.providers validate constraint providers_tenants_are_some;
