-- breaking: no
-- transaction: no
-- Look-ups by likeness: what was put back, or is dead, while nobody knew what became of a call, which is little. They read the whole table for it.
create index concurrently channel_outbox_unsettled_idx on deed.channel_outbox (called_at) where unsettled_since is not null;
