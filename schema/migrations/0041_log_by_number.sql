-- breaking: no
-- transaction: no
-- Where in a partition which numbers are: for looks at the log by number. Each
-- partition has its own, and deed.keep_partitions makes it: an index of deed.log
-- itself could not be attached without standing in publishers' way. Rows come in
-- the order of their numbers, so a summary of every 32 pages says it, and a publish
-- writes nothing to it: pages are summarised once they are full.
create index concurrently log_pN_id_idx on deed.log_pN using brin (id) with (pages_per_range = 32);
