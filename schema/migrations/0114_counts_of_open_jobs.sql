-- breaking: no
-- What has become of a job that has not ended stands on it, too, as of counted_at: deed.roll_up
-- counts it. reasons are why of those that did not get it, a list of [status, reason, count].
alter table deed.job_queue
  add column counted_at timestamptz,
  add column queued     int,
  add column sending    int,
  add column in_doubt   int,
  add column held       int,
  add column reasons    jsonb,
  add constraint job_queue_open_counts_are_whole check (num_nulls(queued, sending, in_doubt, held, counted_at, reasons) in (0, 6)) not valid;
alter table deed.job_queue validate constraint job_queue_open_counts_are_whole;

-- A run pauses itself when too much of it fails (deed.pause_failing): why it has, and what had
-- ended, failed and been complained about when it was resumed last, which does not count any more.
alter table deed.campaign_runs
  add column paused_why text,
  add column pause_base jsonb,
  add constraint campaign_runs_paused_why_is_short check (length(paused_why) <= 500 and (paused_why is null or paused_at is not null)) not valid;
alter table deed.campaign_runs validate constraint campaign_runs_paused_why_is_short;
