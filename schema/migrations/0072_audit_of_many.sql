-- breaking: no
-- transaction: no
-- Acts on many deliveries at once, by the deliveries: an erasure empties their reasons.
-- What programs do to many gives no reason.
create index concurrently audit_log_many_idx on deed.audit_log using gin ((details -> 'ids')) where reason is not null and details ? 'ids';
