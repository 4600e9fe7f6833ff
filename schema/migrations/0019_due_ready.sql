-- breaking: no
-- transaction: no
-- Claims: by tenant, run and lane what is due, the oldest first. No claim column
-- is in it.
create index concurrently channel_outbox_ready_idx on deed.channel_outbox (
  status, provider, tenant_id, (coalesce(run_id, '00000000-0000-0000-0000-000000000000'::uuid)), lane, ord
) where due;
