m10_recovery.complete_outbox_event(
    p_event_id BIGINT,
    p_processor_id TEXT,
    p_success BOOLEAN,
    p_error TEXT DEFAULT NULL
) RETURNS VOID
