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
  v_runs  int := coalesce(cardinality(p_runs), 0);
  v_count int := v_runs + coalesce(cardinality(p_stale), 0);
  v_got   int[]; -- of what was brought, those of p_runs and then those of p_stale, what is locked,
  v_all   int[]; -- and what may be stored
  v_free  int[]; -- of p_runs alone
begin
  -- Who redacts, rebuilds or removes a run has its row locked for itself, and waits for who stores; appends
  -- do not. In two statements: what the first one locks it may read as it was before. By their places, as everything
  -- here: to look for a run among a thousand costs more than to store it.
  v_got := array(
    select o.n
    from (
      select n, case when n <= v_runs then p_runs[n] else p_stale[n - v_runs] end as run_id
      from generate_series(1, v_count) n
      order by 2
    ) o
    cross join lateral (select r.run_id from deed.runs r where r.run_id = o.run_id for key share skip locked) r
  );
  v_all := array(
    select n
    from unnest(v_got) n
    cross join lateral (
      select r.redacted_at from deed.runs r where r.run_id = case when n <= v_runs then p_runs[n] else p_stale[n - v_runs] end
    ) r
    where n > v_runs or p_redacted[n] = (r.redacted_at is not null)
    order by n
  );
  if cardinality(v_all) < v_count then
    insert into deed.run_behind (run_id, seq)
    select o.run_id, o.seq
    from (select g from generate_series(1, v_count) g except select a from unnest(v_all) a) m(n)
    cross join lateral (
      select case when n <= v_runs then p_runs[n] else p_stale[n - v_runs] end as run_id,
        case when n <= v_runs then p_seqs[n] else greatest(p_expected[n - v_runs], p_got[n - v_runs]) end as seq
    ) o
    where exists (select from deed.runs r where r.run_id = o.run_id)
      and not exists (select from deed.run_behind b where b.run_id = o.run_id and b.seq >= o.seq);
  end if;
  v_free := array(select n from unnest(v_all) n where n <= v_runs);

  insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot)
  select p_runs[n], r.tenant_id, p_seqs[n], clock_timestamp(), p_snapshots[n]
  from unnest(v_free) n
  cross join lateral (select r.tenant_id from deed.runs r where r.run_id = p_runs[n]) r
  on conflict do nothing;

  delete from deed.run_snapshots s
  using unnest(v_free) n
  where s.run_id = p_runs[n] and s.last_event_seq < p_seqs[n]
    and exists (
      select from deed.run_snapshots o
      where o.run_id = s.run_id and o.last_event_seq < s.last_event_seq and o.last_event_seq > s.last_event_seq / 2
    );

  delete from deed.run_stale t
  using unnest(v_free) n
  where t.run_id = p_runs[n] and t.expected_seq <= p_seqs[n] and (p_runs[n] = any (p_stale)) is not true;

  return query
  insert into deed.run_stale as t (run_id, tenant_id, since, expected_seq, got_seq)
  select p_stale[n], r.tenant_id, clock_timestamp(), p_expected[n], p_got[n]
  from (select a - v_runs as n from unnest(v_all) a where a > v_runs) f
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
