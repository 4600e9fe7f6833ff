-- breaking: no
-- transaction: no
-- To find files that were used long ago, those last that were needed when they were looked at.
create index concurrently contents_due_idx on deed.contents (greatest(used_at, passed_at));
