-- breaking: no
-- A partition that began to go and had to begin anew lets others go first.
alter table deed.partitions add column restarts int not null default 0;
