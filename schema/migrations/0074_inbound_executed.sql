-- breaking: no
-- transaction: no
-- How many of somebody's messages were executed of late, among many that were denied.
create index concurrently channel_messages_executed_idx on deed.channel_messages (contact_id, source, finished_at) where status = 'executed';
