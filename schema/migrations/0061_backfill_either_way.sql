-- breaking: no
-- reached null: what was published while nobody had declared the topic comes in the
-- order of (slot, id), since the log had much without a summary when it began.
alter table deed.backfills alter column reached drop not null, alter column reached drop default;
