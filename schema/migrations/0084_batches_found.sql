-- breaking: no
-- transaction: no
-- To find the members of a batch that may still be repeated.
create unique index concurrently channel_outbox_batch_idx on deed.channel_outbox (provider, batch_id, batch_place)
  where status = 'sending' and batch_until is not null;
