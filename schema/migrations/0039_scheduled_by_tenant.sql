-- breaking: no
-- transaction: no
-- What is scheduled, by tenant and when: whose time comes with very many of another's does not wait for them.
create index concurrently channel_outbox_scheduled_idx on deed.channel_outbox (provider, tenant_id, ord) where status = 'queued' and not due;
