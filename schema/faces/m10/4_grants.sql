-- Who may use the m10 face.
revoke all on function
  m10_recovery.publish_outbox, m10_recovery.claim_outbox_events, m10_recovery.complete_outbox_event,
  m10_recovery.outbox_written
from public;
grant usage on schema m10_recovery to deed_app, deed_worker, deed_admin;
grant execute on function m10_recovery.publish_outbox to deed_app, deed_worker, deed_admin;
grant execute on function m10_recovery.claim_outbox_events, m10_recovery.complete_outbox_event to deed_worker;
-- UPDATE is granted to all so that it is refused with a reason; to the
-- application by columns, for who may update a relation may LOCK it in any mode.
revoke update on m10_recovery.outbox from deed_app;
grant update (
  id, aggregate_type, aggregate_id, event_type, payload, created_at, processed_at, retry_count, process_after, claimed_at, claimed_by
) on m10_recovery.outbox to deed_app;
grant select, insert on m10_recovery.outbox to deed_app;
grant select, insert, update, delete on m10_recovery.outbox to deed_worker, deed_admin;
