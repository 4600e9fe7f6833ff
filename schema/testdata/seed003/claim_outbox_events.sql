m10_recovery.claim_outbox_events(
    p_processor_id TEXT,
    p_batch_size INTEGER DEFAULT 10
) RETURNS TABLE(
    id BIGINT,
    aggregate_type TEXT,
    aggregate_id TEXT,
    event_type TEXT,
    payload JSONB,
    retry_count INT
)
