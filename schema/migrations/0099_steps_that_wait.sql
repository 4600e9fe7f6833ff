-- breaking: no
-- transaction: no
-- To find the steps that wait for a delivery to end (deed.wake_steps): they are due when that has.
create index concurrently run_steps_awaiting_idx on deed.run_steps (run_id, place)
  where parked and not ready and process_after = 'infinity';
