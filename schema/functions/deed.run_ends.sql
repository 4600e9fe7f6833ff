-- deed.run_ends: how much of a campaign's run has ended by a call, how much of that failed (what
-- is dead, too) and how much has been complained about: what a run pauses itself by
-- (deed.pause_failing). Who was skipped is in none of these, as nobody was called. With p_exact by
-- the deliveries; else by what stands on its jobs, which may be a minute old.
create or replace function deed.run_ends(
  p_run          uuid,
  p_exact        boolean,
  out ended      bigint,
  out failed     bigint,
  out complained bigint
) returns record
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
begin
  if p_exact then
    select count(*) filter (where c.status <> 'skipped'), count(*) filter (where c.status in ('failed', 'dead'))
    into ended, failed
    from deed.channel_outbox c
    where c.run_id = p_run and c.finished_at is not null;
  else
    select coalesce(sum(j.sent + j.failed + j.dead), 0), coalesce(sum(j.failed + j.dead), 0)
    into ended, failed
    from deed.job_queue j
    where j.run_id = p_run;
  end if;
  select count(*) into complained
  from deed.delivery_feedback f
  where f.run_id = p_run and f.complained_at is not null;
end
$$;
