-- breaking: no
-- What a provider says when it refuses for good: that nobody is at the address, or that
-- who is wants none. 0132 looks at what there is: the lock that this takes nobody can read beside.

alter table deed.delivery_attempts
  drop constraint delivery_attempts_outcome_is_known,
  add constraint delivery_attempts_outcome_is_known
    check (outcome in ('accepted', 'refused', 'bad address', 'opted out', 'not now', 'deferred', 'outage', 'unknown', 'lost', 'proved')) not valid;

update deed.delivery_transitions set meaning = 'taken by the sandbox, and not by its recipient; or the provider says that they have opted out'
where from_status = 'sending' and to_status = 'skipped';
