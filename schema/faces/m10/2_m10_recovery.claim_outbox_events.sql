-- m10_recovery.claim_outbox_events: claim events for a processor, oldest first.
--
-- For five minutes; then they come back by themselves. retry_count counts the
-- failures so far. Raises DDARG for a missing processor and a size below 0.
create or replace function m10_recovery.claim_outbox_events(
  p_processor_id text,
  p_batch_size   int default 10
) returns table (
  id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, retry_count int
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select c.id, c.aggregate_type, c.key, c.topic, deed.payload_json(c.content_type, c.payload), c.attempts
  from deed.claim_doors(p_processor_id, p_batch_size, null) c
  order by c.id;
end
$$;
