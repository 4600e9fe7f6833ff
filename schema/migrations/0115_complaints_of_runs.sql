-- breaking: no
-- transaction: no
-- How many of a run have been complained about (deed.run_ends).
create index concurrently delivery_feedback_complaints_idx on deed.delivery_feedback (run_id) where complained_at is not null and run_id is not null;
