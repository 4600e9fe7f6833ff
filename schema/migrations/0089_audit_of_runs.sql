-- breaking: no
-- transaction: no
create index concurrently audit_log_run_idx on deed.audit_log (run_id, n) where run_id is not null;
