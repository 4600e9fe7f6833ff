-- deed.store_snapshots: store what runs are after events (R6), each as a new row, and
-- note which of the runs miss one (R7). For projectors.
--
-- Of a run's snapshots the newest is kept, and before it those whose sequences double, so
-- that a run of any length has a few. p_stale are runs of which p_expected is missing where
-- p_got comes; null: the log ends there, and more was published or projected. A run that has
-- got past what was missing is noted as stale no more. Returns which runs are stale that
-- were not. p_redacted is whether they were redacted when they were read. A run that is by now
-- is passed over: what was taken away would come back (D12); and so is one that somebody redacts or
-- rebuilds in a transaction that is open, which holds up nobody else's. deed.run_behind has them then.
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
declare
  v_of   uuid[];
  v_free uuid[];
begin
  -- Who redacts, rebuilds or removes a run has its row locked for itself, and waits for who stores; appends
  -- do not. In two statements: what the first one locks it may read as it was before.
  v_of := array(select r.run_id from deed.runs r where r.run_id = any (p_runs || p_stale) order by r.run_id);
  v_free := array(select r.run_id from deed.runs r where r.run_id = any (v_of) order by r.run_id for key share skip locked);
  v_free := array(
    select r.run_id
    from deed.runs r
    where r.run_id = any (v_free) and coalesce(p_redacted[array_position(p_runs, r.run_id)] = (r.redacted_at is not null), true)
    order by r.run_id
  );
  if v_free <> v_of then
    insert into deed.run_behind (run_id, seq)
    select o.run_id, o.seq
    from (
      select p_runs[n] as run_id, p_seqs[n] as seq from generate_series(1, cardinality(p_runs)) n
      union all
      select p_stale[n], greatest(p_expected[n], p_got[n]) from generate_series(1, cardinality(p_stale)) n
    ) o
    where o.run_id = any (v_of) and o.run_id <> all (v_free)
      and not exists (select from deed.run_behind b where b.run_id = o.run_id and b.seq >= o.seq);
  end if;

  insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot)
  select p_runs[n], r.tenant_id, p_seqs[n], clock_timestamp(), p_snapshots[n]
  from generate_series(1, cardinality(p_runs)) n
  cross join lateral (select r.tenant_id from deed.runs r where r.run_id = p_runs[n]) r
  where p_runs[n] = any (v_free)
  on conflict do nothing;

  delete from deed.run_snapshots s
  using generate_series(1, cardinality(p_runs)) n
  where s.run_id = p_runs[n] and p_runs[n] = any (v_free) and s.last_event_seq < p_seqs[n]
    and exists (
      select from deed.run_snapshots o
      where o.run_id = s.run_id and o.last_event_seq < s.last_event_seq and o.last_event_seq > s.last_event_seq / 2
    );

  delete from deed.run_stale t
  using generate_series(1, cardinality(p_runs)) n
  where t.run_id = p_runs[n] and p_runs[n] = any (v_free) and t.expected_seq <= p_seqs[n] and (p_runs[n] = any (p_stale)) is not true;

  return query
  insert into deed.run_stale as t (run_id, tenant_id, since, expected_seq, got_seq)
  select p_stale[n], r.tenant_id, clock_timestamp(), p_expected[n], p_got[n]
  from generate_series(1, cardinality(p_stale)) n
  cross join lateral (select r.tenant_id from deed.runs r where r.run_id = p_stale[n]) r
  where p_stale[n] = any (v_free) and (p_got[n] is null or not exists ( -- it has closed meanwhile
    select from deed.run_snapshots s where s.run_id = p_stale[n] and s.last_event_seq >= p_expected[n]
  ))
  order by 1
  on conflict on constraint run_stale_pkey do update set expected_seq = excluded.expected_seq, got_seq = excluded.got_seq
  where t.expected_seq <> excluded.expected_seq or t.got_seq is distinct from excluded.got_seq
  returning t.run_id;
end
$$;
