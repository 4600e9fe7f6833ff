m10_recovery.publish_outbox(
    p_aggregate_type TEXT,
    p_aggregate_id TEXT,
    p_event_type TEXT,
    p_payload JSONB
) RETURNS BIGINT
