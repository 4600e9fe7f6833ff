-- breaking: no
-- transaction: no
-- Claims: as channel_outbox_ready_idx, and what is due at the same time by its id, so that a look can go on behind one of them.
create index concurrently channel_outbox_turn_idx on deed.channel_outbox (
  status, provider, tenant_id, (coalesce(run_id, '00000000-0000-0000-0000-000000000000'::uuid)), lane, ord, id
) where due;
