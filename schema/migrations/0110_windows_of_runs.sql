-- breaking: no
-- Runs of campaigns that go by the recipient's zone: how many members are in which, '' for none
-- of their own, and when the last of them is due. Null: the zone does not matter, and all are
-- due at scheduled_for.
alter table deed.campaign_runs
  add column zones    jsonb,
  add column last_due timestamptz,
  add constraint campaign_runs_zones_are_whole check ((zones is null) = (last_due is null));

-- The rate of a campaign's run is a limit, too; lane is its id then. spent is for how many
-- seconds what was taken at that rate has kept it busy, and ramp a list of such seconds, each
-- followed by the rate from then on.
alter table deed.rate_limits
  add column run_id uuid,
  add column spent  double precision not null default 0,
  add column ramp   double precision[],
  add constraint rate_limits_run_is_lane check (run_id is null or lane = run_id::text);
create unique index rate_limits_run_idx on deed.rate_limits (provider, run_id) where run_id is not null;
