-- deed.decide_winners: decide the tests of campaigns' runs that can be, up to p_limit of those
-- that are due for a look. Returns how many were decided.
--
-- A test is decided wait after the last of its cells' first calls: nobody of them waits for that
-- to be made any more. What is in doubt or tried again is not waited for. The variant with the most
-- clicks, or the fewest complaints, for each delivery that went out wins; of equal ones the first
-- by name, and the first of all where nothing went out. One with something to come is looked
-- at again after a quarter of its age, at least a second and at most a minute later. A run is locked once all
-- are counted, so that several workers may count one at a time, of whom one decides; what somebody has locked is passed over.
create or replace function deed.decide_winners(
  p_limit  int,
  p_worker text
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_run     deed.campaign_runs;
  v_last    timestamptz; -- the last first call
  v_count   record;
  v_counted int := 0;
  v_decided int := 0;
  -- What has become of those that were looked at: when each is looked at again, or who has won, and when that could be said.
  v_ids     uuid[] := '{}';
  v_again   timestamptz[] := '{}';
  v_due     timestamptz[] := '{}';
  v_winner  text[] := '{}';
  v_details jsonb[] := '{}';
  n         int := 0;
begin
  for v_run in
    select r.*
    from deed.campaign_runs r
    where r.decide_at <= v_now and not exists (select from deed.tenant_removals t where t.tenant_id = r.tenant_id)
    order by r.decide_at
  loop
    exit when n = 1000;
    begin -- one that somebody has locked is passed over
      perform from deed.campaign_runs r where r.id = v_run.id for no key update nowait;
      raise raise_exception; -- lets it go
    exception
      when lock_not_available then continue;
      when raise_exception then null;
    end;
    n := n + 1;
    v_ids[n] := v_run.id;
    continue when v_run.finished_at is not null or v_run.cancelled_at is not null;
    if exists (select from deed.job_queue j where j.run_id = v_run.id and j.part = 'test' and j.expanded_at is null and j.finished_at is null)
      or exists (
        select from deed.job_queue j
        join deed.channel_outbox c on c.run_id = j.run_id and c.job_id = j.id
        where j.run_id = v_run.id and j.part = 'test' and j.finished_at is null and c.status = 'queued' and c.first_called_at is null
      )
    then
      v_again[n] := v_now + greatest(interval '1 second', least(interval '1 minute', (v_now - v_run.scheduled_for) / 4));
      continue;
    end if;
    select max(c.first_called_at) into v_last
    from deed.job_queue j
    join deed.channel_outbox c on c.run_id = j.run_id and c.job_id = j.id
    where j.run_id = v_run.id and j.part = 'test';
    v_due[n] := coalesce(v_last + (v_run.options #>> '{test,wait}')::interval, v_run.scheduled_for);
    if v_due[n] > v_now then
      v_again[n] := v_due[n];
      continue;
    end if;
    select v.winner, v.details into v_count from deed.count_variants(v_run.id) v;
    v_winner[n] := v_count.winner;
    v_details[n] := v_count.details;
    v_counted := v_counted + 1;
    exit when v_counted >= p_limit;
  end loop;
  -- Only now: to count takes as long as a test is large, and whoever pauses or cancels a run would wait for it.
  for k in 1..n loop
    select r.* into v_run from deed.campaign_runs r where r.id = v_ids[k] and r.decide_at <= v_now for no key update skip locked;
    continue when not found;
    if v_run.finished_at is not null or v_run.cancelled_at is not null then
      update deed.campaign_runs r set decide_at = null where r.id = v_run.id;
    elsif v_again[k] is not null then
      update deed.campaign_runs r set decide_at = v_again[k] where r.id = v_run.id;
    elsif v_winner[k] is not null then
      perform deed.write_winner(v_run.id, v_winner[k], v_due[k], p_worker, null, v_details[k]);
      v_decided := v_decided + 1;
    end if;
  end loop;
  return v_decided;
end
$$;
