-- breaking: no
-- transaction: no
-- Which runs of campaigns ended long ago (deed.run_to_seal).
create index concurrently campaign_runs_ended_idx on deed.campaign_runs (finished_at) where finished_at is not null and sealed_at is null;
