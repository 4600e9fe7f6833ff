-- breaking: no
-- transaction: no
create index concurrently receipts_unfinished_idx on deed.receipts (n) where finished_at is null;
