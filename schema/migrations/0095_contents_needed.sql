-- breaking: no
-- transaction: no
-- To find whether a file is needed by what is unfinished, or may be put back.
create index concurrently channel_outbox_contents_idx on deed.channel_outbox using gin (contents)
  where contents is not null and status in ('queued', 'sending', 'failed', 'dead');
