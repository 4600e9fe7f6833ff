-- deed.run_ends: how much of a campaign's run has ended by a call, how much of that failed (what
-- is dead, too) and how much has been complained about, by its deliveries: what does not count any more for when the
-- run pauses itself (deed.pause_failing) once it is resumed, and what that goes by at last. Who was skipped is in none of these, as nobody was called.
create or replace function deed.run_ends(
  p_run          uuid,
  out ended      bigint,
  out failed     bigint,
  out complained bigint
) returns record
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
  select count(*) filter (where c.status <> 'skipped'), count(*) filter (where c.status in ('failed', 'dead')),
    (select count(*) from deed.delivery_feedback f where f.run_id = p_run and f.complained_at is not null)
  from deed.channel_outbox c
  where c.run_id = p_run and c.finished_at is not null
$$;
