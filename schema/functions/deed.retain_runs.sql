-- deed.retain_runs: take one small step towards being rid of runs that ended longer ago than
-- p_keep. No row: there is nothing to do now. did:
--   deleted  up to p_limit runs with all that is of them, where others of their week are kept, or it has over twenty times as many
--   emptied  a week: its partition is truncated, and its runs go with it
--   dropped  the empty partition's table
--   waits    somebody uses the table
-- Nothing goes that has not been projected, nor what some subscription of deed.run_events
-- has still to read or to finish: read is what streams have recorded, whatever its age. Any number of
-- processes may call it; one at a time works. Call it under READ COMMITTED, in a transaction of its own.
-- Raises DDARG.
create or replace function deed.retain_runs(
  p_keep  interval,
  p_limit int default 1000
) returns table (did text, week int, runs bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_before timestamptz := clock_timestamp() - p_keep;
  v_subs   int[];
  v_unread timestamptz;
  v_p      deed.run_partitions%rowtype;
  v_few    boolean;
  v_living boolean;
  v_whole  boolean;
  v_ids    uuid[];
begin
  if p_keep is null or p_keep < interval '1 day' or coalesce(p_limit, 0) < 1 then
    raise exception 'retain_runs: keep runs for a day at least, and take one at least' using errcode = 'DDARG';
  end if;
  begin
    lock table deed.retention_lock in share update exclusive mode nowait;
  exception when lock_not_available then
    return;
  end;
  v_subs := array(select s.id from deed.subscriptions s where s.topic = 'deed.run_events');
  -- The first message that is unread in each slot is the oldest there, but for how long an
  -- append takes from its time to its number. A run's messages are read in their order.
  v_unread := coalesce((select min(u.oldest) from deed.count_unread(v_subs, 1, true) u), 'infinity') - interval '1 hour';
  perform set_config('deed.act', 'run retention', true);
  for v_p in
    select p.* from deed.run_partitions p
    where p.dropped_at is null and p.n < floor(extract(epoch from least(v_before, v_unread)) / 604800)
    order by p.n
  loop
    week := v_p.n;
    runs := 0;
    -- No step looks at all the runs of a week that has many: of millions that takes longer than a statement may. They go as where one lives on, and the last of them with the partition.
    v_few := (
      select count(*) from (select from deed.runs r where r.run_id >= v_p.from_id and r.run_id < v_p.upto_id limit 20 * p_limit::bigint + 1) o
    ) <= 20 * p_limit::bigint;
    v_living := exists (
      select from deed.runs r
      where v_few and r.run_id >= v_p.from_id and r.run_id < v_p.upto_id and (r.finished_at is null or r.finished_at >= v_before)
    );
    v_ids := array(
      select r.run_id from deed.runs r
      where r.run_id >= v_p.from_id and r.run_id < v_p.upto_id and r.finished_at < v_before
        and deed.run_was_read(r.run_id, r.tenant_id, v_subs, v_unread)
      order by r.run_id
      limit case when v_living or not v_few then p_limit end
    );
    -- Whoever appends to one holds its row; and what was appended before that is seen after it.
    v_ids := array(select r.run_id from deed.runs r where r.run_id = any (v_ids) order by r.run_id for update skip locked);
    v_ids := array(
      select r.run_id from deed.runs r
      where r.run_id = any (v_ids) and deed.run_was_read(r.run_id, r.tenant_id, v_subs, v_unread)
      order by r.run_id
    );
    v_whole := v_few and not v_living and (select count(*) from deed.runs r where r.run_id >= v_p.from_id and r.run_id < v_p.upto_id) = cardinality(v_ids);
    if not v_whole then
      continue when v_ids = '{}';
      v_ids := v_ids[1:p_limit];
      delete from deed.run_log l where l.run_id = any (v_ids);
    end if;
    delete from deed.run_snapshots s where s.run_id = any (v_ids);
    delete from deed.run_requests q where q.run_id = any (v_ids);
    delete from deed.runs r where r.run_id = any (v_ids);
    get diagnostics runs = row_count;
    did := 'deleted';
    if v_whole then
      begin
        execute format('lock table deed.%I in access exclusive mode', 'run_log_w' || v_p.n); -- last: appends have all partitions in their plans
        if v_ids = '{}' then
          set local lock_timeout = '20ms';
          lock table only deed.run_log in access exclusive mode;
          execute format('drop table deed.%I', 'run_log_w' || v_p.n);
          update deed.run_partitions p set dropped_at = clock_timestamp() where p.n = v_p.n;
          did := 'dropped';
        else
          execute format('truncate deed.%I', 'run_log_w' || v_p.n);
          did := 'emptied';
        end if;
      exception when lock_not_available then
        -- They go one by one; the table is empty then, and goes another time.
        if v_ids = '{}' then
          did := 'waits';
          return next;
          continue;
        end if;
        delete from deed.run_log l where l.run_id = any (v_ids);
        did := 'deleted';
      end;
    end if;
    return next;
    return;
  end loop;
end
$$;
