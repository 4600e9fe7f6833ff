-- breaking: no
-- transaction: no
-- Keys of all streams that wait for a message, the oldest first: pages of deed keys
-- blocked.
create index concurrently pending_blocked_idx on deed.pending (id, subscription) where key_hash is not null and not parked;
