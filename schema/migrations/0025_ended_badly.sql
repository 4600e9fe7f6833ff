-- breaking: no
-- transaction: no
-- What somebody may put back: never many rows.
create index concurrently channel_outbox_ended_badly_idx on deed.channel_outbox (status, provider, id) where status in ('failed', 'dead');
