-- breaking: no
-- Since when what was published before is brought: anew, where a stream has become a queue. Null: since the subscription was made.
alter table deed.backfills add column began_at timestamptz;
