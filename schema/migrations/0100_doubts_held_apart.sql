-- breaking: no
-- transaction: no
-- What is being called or in doubt, and apart from it what is held for a person, which
-- may be many and is nothing to claims. No claim column is in it.
create index concurrently channel_outbox_unheld_idx on deed.channel_outbox (provider, (held_at is null), ord) where status = 'sending';
