-- breaking: no
-- transaction: no
-- Dead letters of all subscriptions, by number: pages of deed dead list.
create index concurrently pending_dead_newest_idx on deed.pending (id, subscription) where dead_at is not null;
