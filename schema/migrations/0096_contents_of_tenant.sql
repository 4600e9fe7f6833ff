-- breaking: no
-- transaction: no
-- To list the files of one tenant, those that were used last first (deed.look_at_contents).
create index concurrently contents_of_tenant_idx on deed.contents (tenant_id, used_at, sha256);
