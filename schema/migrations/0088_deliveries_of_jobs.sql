-- breaking: no
-- transaction: no
-- What a job owes, and what of it is open.
create index concurrently channel_outbox_job_idx on deed.channel_outbox (run_id, job_id) where run_id is not null;
