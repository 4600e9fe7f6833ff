-- breaking: no
-- Steps of kind external, which workers in other languages do (deed.claim_external).

-- offer is what a step is offered to them with, once an engine has computed it: the queue, the input, references to secrets,
-- the key of its effects and the seconds of its time-out. Claimed by one of them it is not ready, and due when the lease is over:
-- then it goes back to the engines' queue. deadline is when its time-out is over.
alter table deed.run_steps add column deadline timestamptz;
alter table deed.run_steps add column offer jsonb;
alter table deed.run_steps drop constraint run_steps_claimed_is_ready;
alter table deed.run_steps add constraint run_steps_claimed_is_ready check (ready or claim is null or offer is not null);
alter table deed.run_steps drop constraint run_steps_verdict_is_known;
alter table deed.run_steps add constraint run_steps_verdict_is_known check (verdict in ('WORKER_LOST', 'OUTCOME_UNKNOWN', 'HOLD_OVER', 'TIMEOUT'));
