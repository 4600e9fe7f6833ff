-- breaking: no
-- Up to which number a new subscription has been given what was published while
-- nobody had declared its topic. Of a backfill that is under way what lies up to
-- (slot, id) has been given, too.
alter table deed.backfills add column reached bigint not null default 0;
