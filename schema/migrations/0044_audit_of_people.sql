-- breaking: no
-- transaction: no
-- What people did, and not the program with deliveries: pages of deed audit.
create index concurrently audit_log_people_idx on deed.audit_log (n)
  where subject_type <> 'delivery'
    or (action not in ('reserve', 'attempt', 'reconcile', 'doubt', 'hold', 'purge') and (action <> 'settle' or subject_id is not null));
