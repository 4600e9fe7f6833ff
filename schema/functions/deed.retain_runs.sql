-- deed.retain_runs: take one small step towards being rid of runs that ended longer ago than
-- p_keep. No row: there is nothing to do now. did:
--   deleted  up to p_limit runs with all that is of them, where others of their week are kept
--   emptied  a week: its partition is truncated, and its runs go with it
--   dropped  the empty partition's table
--   waits    somebody uses the table
-- Nothing goes that has not been projected, and while some subscription of deed.run_events
-- has still to read what was published before then. Any number of processes may call it; one
-- at a time works. Call it under READ COMMITTED, in a transaction of its own. Raises DDARG.
create or replace function deed.retain_runs(
  p_keep  interval,
  p_limit int default 1000
) returns table (did text, week int, runs bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_before timestamptz := clock_timestamp() - p_keep;
  v_p      deed.run_partitions%rowtype;
  v_ids    uuid[];
  v_count  bigint;
  v_kept   boolean;
begin
  if p_keep is null or p_keep < interval '1 day' or coalesce(p_limit, 0) < 1 then
    raise exception 'retain_runs: keep runs for a day at least, and take one at least' using errcode = 'DDARG';
  end if;
  begin
    lock table deed.retention_lock in share update exclusive mode nowait;
  exception when lock_not_available then
    return;
  end;
  if exists (
    select from deed.subscriptions s
    where s.topic = 'deed.run_events' and (
      exists (select from deed.count_unread(array[s.id], 1, true) u where u.oldest < v_before)
      or exists (select from deed.pending w where w.subscription = s.id and w.ord_at < v_before)
    )
  ) then
    return;
  end if;
  perform set_config('deed.act', 'run retention', true);
  for v_p in
    select p.* from deed.run_partitions p
    where p.dropped_at is null and p.n < floor(extract(epoch from v_before) / 604800)
    order by p.n
  loop
    week := v_p.n;
    runs := 0;
    v_ids := array(
      select r.run_id from deed.runs r
      where r.run_id >= v_p.from_id and r.run_id < v_p.upto_id and r.finished_at < v_before
        and exists (
          select from deed.run_snapshots s
          where s.run_id = r.run_id and s.last_event_seq = (select l.run_seq from deed.run_log l where l.run_id = r.run_id order by l.run_seq desc limit 1)
        )
        and not exists (select from deed.run_stale t where t.run_id = r.run_id)
      order by r.run_id
    );
    v_kept := exists (select from deed.runs r where r.run_id >= v_p.from_id and r.run_id < v_p.upto_id and r.run_id <> all (v_ids));
    continue when v_kept and v_ids = '{}';
    if not v_kept then
      begin
        execute format('lock table deed.%I in access exclusive mode', 'run_log_w' || v_p.n);
        if v_ids = '{}' then
          set local lock_timeout = '20ms';
          lock table only deed.run_log in access exclusive mode;
          execute format('drop table deed.%I', 'run_log_w' || v_p.n);
          update deed.run_partitions p set dropped_at = clock_timestamp() where p.n = v_p.n;
          did := 'dropped';
          return next;
          return;
        end if;
        execute format('truncate deed.%I', 'run_log_w' || v_p.n);
        did := 'emptied';
      exception when lock_not_available then
        did := 'waits';
        return next;
        continue;
      end;
    else
      v_ids := v_ids[1:p_limit];
      delete from deed.run_log l where l.run_id = any (v_ids);
      did := 'deleted';
    end if;
    delete from deed.run_snapshots s where s.run_id = any (v_ids);
    delete from deed.run_requests q where q.run_id = any (v_ids);
    delete from deed.runs r where r.run_id = any (v_ids);
    get diagnostics v_count = row_count;
    runs := v_count;
    return next;
    return;
  end loop;
end
$$;
