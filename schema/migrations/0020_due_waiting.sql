-- breaking: no
-- transaction: no
-- What is scheduled, by when.
create index concurrently channel_outbox_waiting_idx on deed.channel_outbox (provider, ord) where status = 'queued' and not due;
