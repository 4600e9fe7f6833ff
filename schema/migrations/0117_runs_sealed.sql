-- breaking: no
-- Runs of campaigns whose retention is over: what is known of one is written on it at sealed_at
-- (deed.seal_run), and then its deliveries go (deed.purge_run), the last of them at purged_at.
alter table deed.campaign_runs
  add column sealed    jsonb,
  add column sealed_at timestamptz,
  add column purged_at timestamptz,
  add constraint campaign_runs_seal_is_whole
    check ((sealed is null) = (sealed_at is null) and (purged_at is null or sealed_at is not null) and (sealed_at is null or finished_at is not null)) not valid;
alter table deed.campaign_runs validate constraint campaign_runs_seal_is_whole;
create index campaign_runs_sealed_idx on deed.campaign_runs (sealed_at) where sealed_at is not null and purged_at is null;
