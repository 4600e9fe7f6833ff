-- breaking: no
-- transaction: no
-- What is dead and may be put back, by provider: looks count that alone, however much of campaigns' runs is dead beside it.
create index concurrently channel_outbox_dead_idx on deed.channel_outbox (provider, finished_at)
  where status = 'dead' and run_id is null and proved_at is null and erased_at is null;
