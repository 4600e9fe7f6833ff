-- breaking: no
-- The index of the jobs' deliveries takes the place, and the name, of that of the runs'.
drop index if exists deed.idx_channel_outbox_run_id;
alter index deed.channel_outbox_job_idx rename to idx_channel_outbox_run_id;
