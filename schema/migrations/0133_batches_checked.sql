-- breaking: no
-- What 0083 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
alter table deed.channel_outbox validate constraint channel_outbox_batch_is_whole;
