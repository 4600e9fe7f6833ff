-- breaking: no
-- How large a delivery's payload may be: one tenant's must not cost all relays
-- their memory.
alter table deed.settings add column max_delivery int not null default 1048576
  constraint settings_max_delivery_is_sane check (max_delivery between 1024 and 10485760);
