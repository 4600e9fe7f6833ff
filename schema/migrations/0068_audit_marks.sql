-- breaking: no
-- transaction: no
-- What the audit log still says of addresses (deed.mark_audit): nothing, soon.
create index concurrently audit_log_unmarked_idx on deed.audit_log (n) where subject_type = 'suppression' and subject_id !~ ':hmac:[0-9a-f]{32}$';
