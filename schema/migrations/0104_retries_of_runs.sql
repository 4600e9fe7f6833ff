-- breaking: no
-- A run of a campaign that retries another one (C7): which, and at most one does.
alter table deed.campaign_runs add column retry_of uuid;
create unique index campaign_runs_retry_idx on deed.campaign_runs (retry_of) where retry_of is not null;
