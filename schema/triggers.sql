-- Triggers, run after every replacement of the functions that they call; and
-- what stored rows owe to functions that may have changed.
create or replace trigger audit_log_append_only before update or delete or truncate on deed.audit_log
  for each statement execute function deed.refuse_change();

create or replace trigger channel_outbox_insert before insert on deed.channel_outbox
  for each row when (new.status <> 'queued') execute function deed.check_transition();
create or replace trigger channel_outbox_transition before update on deed.channel_outbox
  for each row when (old.status <> new.status) execute function deed.check_transition();
create or replace trigger channel_outbox_due before update of status, process_after, doubt_since, held_at on deed.channel_outbox
  for each row execute function deed.mark_due();
create or replace trigger channel_outbox_rewrite before update of id, tenant_id, workspace_id, idempotency_key, provider, channel, request on deed.channel_outbox
  for each row execute function deed.refuse_rewrite();
create or replace trigger channel_outbox_delete before delete on deed.channel_outbox
  for each row when (old.finished_at is null) execute function deed.refuse_rewrite();
create or replace trigger channel_outbox_truncate before truncate on deed.channel_outbox
  for each statement execute function deed.refuse_change();

select deed.refold_suppressions();
