-- deed.write_beginnings: append RunApproved and RunStarted of runs that the caller's transaction has made, the first two events of
-- each. For deed.begin_requests, at less than half of what deed.write_events costs: nobody else knows these runs, so nothing is locked, looked for in the log, or
-- changed in their rows, which say already what they are after it.
--
-- The arrays are parallel; p_steps are the names of the plan's steps, p_at when the run began. Promises and the order of what is read are the same; the tenants were checked by the caller
-- (deed.tenant_of_call).
create or replace function deed.write_beginnings(
  p_runs     uuid[],
  p_tenants  uuid[],
  p_versions text[],
  p_steps    jsonb[],
  p_at       timestamptz[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set timezone = 'UTC'
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_xid xid8 := pg_current_xact_id(); -- before what follows: see deed.write_events
  v_s   record;
begin
  select s.list_version as settled, s.removed_tenants, t.mode, t.slot_base, t.list_version into v_s
  from deed.settings s
  cross join lateral (select t.* from deed.topics t where t.topic = 'deed.run_events' and t.own) t;
  if v_s.mode is distinct from 'stream' then
    raise exception 'append_events: the settings or the topic deed.run_events cannot be read, or it is not deed''s own'
      using errcode = 'DDCON', hint = 'Run deed migrate up as the owner.';
  end if;
  if current_setting('transaction_isolation') <> 'read committed'
    and pg_sequence_last_value('deed.list_seq') is distinct from v_s.settled
  then
    lock table deed.topics in row exclusive mode; -- see deed.publish_many
    perform deed.check_lists(array['deed.run_events']);
    perform deed.check_tenants(p_tenants);
  end if;
  if v_s.removed_tenants then
    perform from deed.tenant_removals r where r.tenant_id = any (p_tenants);
    if found then
      raise exception 'append_events: the tenant of a run was removed' using errcode = 'DDCON';
    end if;
  end if;
  with appended as materialized (
    select p_runs[r.n] as run_id, r.name, r.slot, p_tenants[r.n] as tenant_id, p_at[r.n] as at, g.seq,
      case g.seq when 1 then 'RunApproved' else 'RunStarted' end as type,
      deed.event_key(p_runs[r.n], 'RUN', 1, case g.seq when 1 then 'RunApproved' else 'RunStarted' end, p_versions[r.n]) as key,
      -- An event's data are bounded.
      case when g.seq = 2 and octet_length(p_steps[r.n]::text) <= 60000 then jsonb_build_object('steps', p_steps[r.n]) else '{}' end as data
    from (
      select n, p_runs[n]::text as name, deed.slot(v_s.slot_base, p_runs[n]::text, 0) as slot
      from generate_series(1, cardinality(p_runs)) n
      offset 0 -- once for a run
    ) r
    cross join generate_series(1, 2) g(seq)
    order by r.n, g.seq
  ),
  events as (
    insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, event_type, idempotency_key, event_data)
    select a.run_id, a.tenant_id, a.seq, a.at, a.at, 1, a.type, a.key, a.data from appended a
  )
  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, key, type, content_type, payload)
  select nextval('deed.log_seq'), v_xid, a.slot, v_s.list_version, a.tenant_id, a.at, 'deed.run_events', a.name, a.type, 'application/json',
    deed.event_message(a.name, a.seq, deed.run_event_id(a.run_id, a.seq), a.type, null, 1, null, a.key, a.at, ',"persistedAt":' || to_json(a.at)::text, null, null, null, a.data)
  from appended a;
end
$$;
