-- breaking: no
-- transaction: no
-- Inbound messages that have failed and that only their platform repeats.
create index concurrently channel_messages_failed_idx on deed.channel_messages (source, finished_at)
  where status = 'dispatch_failed' and held_at is null and process_after is null;
