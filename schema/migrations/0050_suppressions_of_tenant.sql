-- breaking: no
-- transaction: no
-- Those of one tenant, newest first.
create index concurrently suppressions_of_tenant_idx on deed.suppressions (tenant_id, created_at, channel, address);
