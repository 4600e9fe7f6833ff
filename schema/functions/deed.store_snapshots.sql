-- deed.store_snapshots: store what runs are after events (R6), each as a new row, and
-- note which of the runs miss one (R7). For projectors.
--
-- Of a run's snapshots the newest is kept, and before it those whose sequences double, so
-- that a run of any length has a few. p_stale are runs of which p_expected is missing where
-- p_got comes; null: the log ends there, and more was published or projected. A run that has
-- got past what was missing is noted as stale no more. Returns which runs are stale that
-- were not. p_redacted is whether they were redacted when they were read; raises 40001 where
-- one is by now: what was taken away would come back (D12).
create or replace function deed.store_snapshots(
  p_runs      uuid[],
  p_seqs      bigint[],
  p_snapshots jsonb[],
  p_redacted  boolean[],
  p_stale     uuid[] default '{}',
  p_expected  bigint[] default '{}',
  p_got       bigint[] default '{}'
) returns setof uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  -- deed.redact_run waits for who stores, and who waits for it finds it here.
  lock table deed.run_snapshots in row exclusive mode;
  if exists (
    select from generate_series(1, cardinality(p_runs)) n
    cross join lateral (select r.redacted_at from deed.runs r where r.run_id = p_runs[n]) r
    where (r.redacted_at is not null) <> p_redacted[n]
  ) then
    raise exception 'store_snapshots: a run was redacted since it was read' using errcode = '40001';
  end if;

  insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot)
  select p_runs[n], r.tenant_id, p_seqs[n], clock_timestamp(), p_snapshots[n]
  from generate_series(1, cardinality(p_runs)) n
  cross join lateral (select r.tenant_id from deed.runs r where r.run_id = p_runs[n]) r
  on conflict do nothing;

  delete from deed.run_snapshots s
  using generate_series(1, cardinality(p_runs)) n
  where s.run_id = p_runs[n] and s.last_event_seq < p_seqs[n]
    and exists (
      select from deed.run_snapshots o
      where o.run_id = s.run_id and o.last_event_seq < s.last_event_seq and o.last_event_seq > s.last_event_seq / 2
    );

  delete from deed.run_stale t
  using generate_series(1, cardinality(p_runs)) n
  where t.run_id = p_runs[n] and t.expected_seq <= p_seqs[n] and (p_runs[n] = any (p_stale)) is not true;

  return query
  insert into deed.run_stale as t (run_id, tenant_id, since, expected_seq, got_seq)
  select p_stale[n], r.tenant_id, clock_timestamp(), p_expected[n], p_got[n]
  from generate_series(1, cardinality(p_stale)) n
  cross join lateral (select r.tenant_id from deed.runs r where r.run_id = p_stale[n]) r
  where p_got[n] is null or not exists ( -- it has closed meanwhile
    select from deed.run_snapshots s where s.run_id = p_stale[n] and s.last_event_seq >= p_expected[n]
  )
  order by 1
  on conflict on constraint run_stale_pkey do update set expected_seq = excluded.expected_seq, got_seq = excluded.got_seq
  where t.expected_seq <> excluded.expected_seq or t.got_seq is distinct from excluded.got_seq
  returning t.run_id;
end
$$;
