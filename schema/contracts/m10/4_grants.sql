-- Who may use the m10 face.
revoke all on function
  m10_recovery.publish_outbox, m10_recovery.claim_outbox_events, m10_recovery.complete_outbox_event,
  m10_recovery.outbox_written
from public;
grant usage on schema m10_recovery to deed_app, deed_worker, deed_admin;
grant execute on function m10_recovery.publish_outbox to deed_app, deed_worker, deed_admin;
grant execute on function m10_recovery.claim_outbox_events, m10_recovery.complete_outbox_event to deed_worker;
-- UPDATE is granted to all so that it is refused with a reason.
grant select, insert, update on m10_recovery.outbox to deed_app, deed_worker, deed_admin;
grant delete on m10_recovery.outbox to deed_worker, deed_admin;
