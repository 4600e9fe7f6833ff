-- deed.event_message: an event of a run as it is published (R13), spelled as seed 001 has it.
--
-- p_rest is what all events of a call have. Times are written in the session's zone: callers set
-- UTC. Called stable, for convert_to is: else calls are not inlined.
create or replace function deed.event_message(
  p_run            text,
  p_seq            bigint,
  p_event_id       uuid,
  p_type           text,
  p_step           text,
  p_attempt        int,
  p_engine_attempt int,
  p_key            bytea,
  p_emitted_at     timestamptz,
  p_rest           text,
  p_signal         uuid,
  p_parent         uuid,
  p_engine_run_ref jsonb,
  p_data           jsonb
) returns bytea
language sql
stable parallel safe
return convert_to('{"runId":"' || p_run || '","runSeq":' || p_seq || ',"eventId":"' || p_event_id || '","eventType":"' || p_type || '"'
  || coalesce(',"stepId":' || to_json(p_step)::text, '') || ',"logicalAttemptId":"' || p_attempt || '"' || coalesce(',"engineAttemptId":"' || p_engine_attempt || '"', '')
  || ',"idempotencyKey":"' || encode(p_key, 'hex') || '","emittedAt":' || to_json(p_emitted_at)::text || p_rest
  || coalesce(',"causedBySignalId":"' || p_signal || '"', '') || coalesce(',"parentEventId":"' || p_parent || '"', '')
  || coalesce(',"engineRunRef":' || p_engine_run_ref::text, '') || ',"eventData":' || p_data::text || '}', 'UTF8');
