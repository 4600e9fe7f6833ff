-- breaking: no
-- transaction: no
-- What expires while nobody may be called for it.
create index concurrently channel_outbox_expiring_idx on deed.channel_outbox (expires_at) where status = 'queued' and expires_at is not null;
