-- deed.attempt: write that claimed deliveries are about to be called (D4).
--
-- queued becomes sending, with the request that will be sent unchanged from
-- now on; it must have committed before anyone calls. Suppressions are looked
-- at once more, at the provider's door: who is suppressed is skipped. Only
-- rows whose claim is still the caller's. Returns a row for each of those:
-- status sending means call, any other do not.
--
-- p_windows is for how many seconds the provider promises to know its key;
-- repeat_safe_until is kept that long from the first attempt with a tenth of it
-- to spare, and begins anew only when all of it is long over.
create or replace function deed.attempt(
  p_ids      uuid[],
  p_claims   bigint[],
  p_requests bytea[],
  p_window   interval,
  p_lease    interval,
  p_worker   text
) returns table (id uuid, status text, attempts int, repeat_safe_until timestamptz)
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
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  -- A call must find its row after any crash.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  -- In a statement of its own: what it has waited for, such as a renewal or a
  -- change of lanes, the next one sees.
  perform q.id
  from (select u.* from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
  cross join lateral (
    select c.id from deed.channel_outbox c where c.id = u.id and c.claim = u.claim and c.status = 'queued' for update
  ) q;
  return query
  with mine as (
    select q.*
    from (select u.* from unnest(p_ids, p_claims, p_requests) u(id, claim, request) order by u.id) u
    cross join lateral (
      select c.ctid as place, u.request, c.tenant_id, (
          select 'suppressed: ' || left(s.reason, 180) from deed.suppressions s
          where s.tenant_id = c.tenant_id and s.channel = c.channel and s.address = lower(c.recipient)
        ) as skip
      from deed.channel_outbox c
      where c.id = u.id and c.claim = u.claim and c.status = 'queued'
      for update of c
    ) q
  ),
  done as (
    update deed.channel_outbox c
    set status = case when m.skip is null then 'sending' else 'skipped' end,
      skipped = m.skip is not null,
      skip_reason = m.skip,
      request = coalesce(c.request, case when m.skip is null then m.request end),
      attempts = c.attempts + case when m.skip is null then 1 else 0 end,
      first_called_at = coalesce(c.first_called_at, case when m.skip is null then v_now end),
      called_at = case when m.skip is null then v_now else c.called_at end,
      repeat_safe_until = case
        when m.skip is not null or p_window is null then c.repeat_safe_until
        when c.repeat_safe_until is null or v_now > c.repeat_safe_until + p_window * 0.2 then v_now + p_window * 0.9
        else c.repeat_safe_until end,
      finished_at = case when m.skip is not null then v_now end,
      claimed_at = case when m.skip is null then c.claimed_at end,
      claimed_by = case when m.skip is null then c.claimed_by end,
      lease_until = case when m.skip is null then v_now + p_lease end,
      updated_at = v_now
    from mine m
    where c.ctid = m.place
    returning c.id, c.tenant_id, c.status, c.attempts, c.repeat_safe_until
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details)
    select d.tenant_id, p_worker, 'attempt', 'delivery', case when count(*) = 1 then min(d.id::text) end, 'queued', d.status,
      count(*), case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(d.id)) end
    from done d
    group by d.tenant_id, d.status
  )
  select d.id, d.status, d.attempts, d.repeat_safe_until from done d;
end
$$;
