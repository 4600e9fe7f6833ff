-- breaking: no
-- transaction: no
-- What people did, without what the program lets expire, gives up or was proved.
create index concurrently audit_log_acts_idx on deed.audit_log (n)
  where action not in ('expire', 'give up', 'proof')
    and (subject_type <> 'delivery'
      or (action not in ('reserve', 'attempt', 'reconcile', 'doubt', 'hold', 'purge') and (action <> 'settle' or details ? 'decision')));
