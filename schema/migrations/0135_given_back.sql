-- breaking: no
-- Which claim has given a step back, or had it wait: who asks again, as the answer was lost, is told that it was recorded.
alter table deed.run_steps add column given_back bigint;
