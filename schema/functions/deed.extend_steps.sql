-- deed.extend_steps: renew the leases of steps. Returns the places in the arrays, from 1, of those whose claim is
-- still the caller's; the others are another's by now, or their run has ended. A row that somebody has locked is not waited for, since
-- all that the caller has in hand would lose its lease meanwhile: it is the caller's while its lease lasts.
-- deed.record_steps locks it for a moment, and renews it itself; who ends its run (deed.stop_run) may leave the transaction open.
create or replace function deed.extend_steps(
  p_runs   uuid[],
  p_places int[],
  p_claims bigint[],
  p_lease  interval default interval '30 seconds'
) returns setof int
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
  v_held int[];
  v_rows tid[];
begin
  if (p_lease between interval '1 second' and interval '24 hours') is not true then
    raise exception 'extend_steps: lease must be from 1 second to 24 hours, got %', coalesce(p_lease::text, 'null') using errcode = 'DDARG';
  end if;
  select array_agg(q.n), array_agg(q.ctid) into v_held, v_rows
  from generate_series(1, cardinality(p_runs)) u(n)
  cross join lateral (
    select u.n, s.ctid from deed.run_steps s
    where s.run_id = p_runs[u.n] and s.place = p_places[u.n] and s.claim = p_claims[u.n]
    for update skip locked
  ) q;
  update deed.run_steps s set lease_until = clock_timestamp() + p_lease where s.ctid = any (v_rows);
  return query select u from unnest(v_held) u;
  return query
  select n
  from generate_series(1, cardinality(p_runs)) n
  cross join lateral (
    select s.lease_until from deed.run_steps s where s.run_id = p_runs[n] and s.place = p_places[n] and s.claim = p_claims[n]
  ) s
  where n <> all (coalesce(v_held, '{}')) and s.lease_until > clock_timestamp();
end
$$;
