-- breaking: no
-- What is scheduled stays out of the claim's index until its time has come, and
-- claims are counted that ended with the worker.

-- process_after says when, and nothing else does (O5); due says that this time
-- has come, since an index cannot ask what time it is: deed.mark_due sets it
-- where the schedule changes, deed.ripen where time has passed. Of a delivery
-- that may be claimed now it is true: one that is queued, or in doubt and not
-- held. Those of before begin as not due and ripen with the others.
--
-- payload_bytes is the payload's size in memory; null: of before, to be measured.
-- lost_claims counts claims that ran out: their worker died or froze (O17).
alter table deed.channel_outbox
  add column due           boolean not null default false,
  add column payload_bytes int,
  add column lost_claims   int     not null default 0;

insert into deed.delivery_transitions (from_status, to_status, made_by, meaning)
values ('queued', 'dead', 'ledger', 'its claims were lost, again and again')
on conflict do nothing;
