-- Triggers, run after every replacement of the functions that they call.
create or replace trigger audit_log_append_only before update or delete or truncate on deed.audit_log
  for each statement execute function deed.refuse_change();
