-- breaking: no
-- transaction: no
-- Those that end: deed.expire_suppressions takes them away.
create index concurrently suppressions_end_idx on deed.suppressions (expires_at) where expires_at is not null;
