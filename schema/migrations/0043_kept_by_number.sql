-- breaking: no
-- transaction: no
-- What retention has kept of the log, by number.
create index concurrently kept_id_idx on deed.kept (id);
