-- breaking: no
-- transaction: no
-- What people did: of what was settled what somebody has decided, and not what the
-- program settled alone, such as the probes of a pause.
create index concurrently audit_log_persons_idx on deed.audit_log (n)
  where subject_type <> 'delivery'
    or (action not in ('reserve', 'attempt', 'reconcile', 'doubt', 'hold', 'purge') and (action <> 'settle' or details ? 'decision'));
