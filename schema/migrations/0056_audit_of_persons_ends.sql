-- breaking: no
-- In its place is audit_log_acts_idx.
drop index deed.audit_log_persons_idx;
