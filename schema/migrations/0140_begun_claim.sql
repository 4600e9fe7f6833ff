-- breaking: no
-- Under which claim a step has begun: of one that has slept, and was claimed again, nothing has begun since. 0: under none. Null: as of before, under the one that it has.
alter table deed.run_steps add column begun_claim bigint;
