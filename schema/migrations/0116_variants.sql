-- breaking: no
-- Variants of what a campaign says (A/B). A run with a test has two jobs for a range of its
-- audience: one for those of its members who are in the test's cells, and one for the rest, who
-- wait for the winner. members is how many of the range a job is for; null: all of them.
alter table deed.job_queue
  add column part    text,
  add column members int,
  add constraint job_queue_part_is_whole
    check ((part is null) = (members is null) and (part is null or part in ('test', 'rest')) and (members is null or members between 1 and upto_n - from_n + 1)) not valid;
alter table deed.job_queue validate constraint job_queue_part_is_whole;
alter table deed.job_queue drop constraint job_queue_members_key;
create unique index job_queue_members_key on deed.job_queue (run_id, from_n, coalesce(part, ''));

-- What the rest gets, once that is decided: written once. decide_at is when relays look next
-- whether it can be; null: they do not.
alter table deed.campaign_runs
  add column winner    text,
  add column winner_at timestamptz,
  add column decide_at timestamptz,
  add constraint campaign_runs_winner_is_whole check ((winner is null) = (winner_at is null) and (winner is null or decide_at is null)) not valid;
alter table deed.campaign_runs validate constraint campaign_runs_winner_is_whole;
create index campaign_runs_decide_idx on deed.campaign_runs (decide_at) where decide_at is not null;
