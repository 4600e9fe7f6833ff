-- deed.run_ends_since: of what deed.run_ends counts of deliveries, what ended from a time on, however much the
-- run has: it costs what has ended since then of all that there is.
create or replace function deed.run_ends_since(
  p_run      uuid,
  p_from     timestamptz,
  out ended  bigint,
  out failed bigint
) returns record
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
  select count(*) filter (where s.status <> 'skipped'), count(*) filter (where s.status in ('failed', 'dead'))
  from (
    select c.run_id, c.status
    from deed.channel_outbox c
    where c.finished_at >= p_from
    offset 0 -- by the time, and not by the run
  ) s
  where s.run_id = p_run
$$;
