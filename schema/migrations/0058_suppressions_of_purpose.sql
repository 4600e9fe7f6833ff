-- breaking: no
-- transaction: no
-- An address may be suppressed for several purposes: what is to be the primary key.
create unique index concurrently suppressions_of_purpose_idx on deed.suppressions (tenant_id, channel, address, purpose);
