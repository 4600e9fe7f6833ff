-- breaking: no
-- transaction: no
-- Of each key that has messages aside, the one that stands free.
create index concurrently pending_free_idx on deed.pending (subscription, key_hash)
  where key_hash is not null and not parked;
