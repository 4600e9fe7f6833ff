-- breaking: no
-- transaction: no
-- Suppressions of all tenants, newest first: pages of deed suppressions list.
create index concurrently suppressions_newest_idx on deed.suppressions (created_at, tenant_id, channel, address);
