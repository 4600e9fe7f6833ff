-- deed.attempt: write that claimed deliveries are about to be called (D4).
--
-- queued becomes sending, with the request that will be sent unchanged from
-- now on; it must have committed before anyone calls. Suppressions are looked
-- at once more, at the provider's door: who is suppressed is skipped, or if one who gets a copy is, who has revoked what
-- it is for (deed.revoked), who has been erased
-- since (deed.is_being_erased), what is
-- not an address too, since nobody can tell whether it is suppressed, and what
-- has expired; the reason says so where an earlier call may have been accepted.
-- What its campaign's run does not send any more is skipped, as cancelled or expired: a
-- member's time is over as long after its own due time as the run's is after the last one's, and
-- the time in which the run's rate held it up does not count (deed.held_up). What had begun by then goes on, as deed.sweep_runs has it.
-- What has been paused since it was claimed, its run or where it goes to, is let go, but for the
-- pause's probe; and so is what is of a tenant that is being removed, and what is in its recipient's
-- quiet hours, until these end. Only rows whose claim is still the caller's. Returns a row for
-- each of those: status sending means call, any other do not, and why says why.
--
-- p_kind, p_account and p_sandbox are how the caller serves the provider. The
-- caller may not call, and lets the row go with why, where that is not what
-- deed.providers says (replaced: another dispatcher has registered the name
-- since; nothing goes to anyone but the sandbox while that is on), or where the
-- first call was made through another account (foreign: it is put off a while,
-- for the dispatcher that has that account), or where the sandbox is on and an
-- earlier, real call may have been accepted (waits: it is put off, too). Null
-- p_kind: not looked at.
--
-- p_window is for how long the provider promises to know its key;
-- repeat_safe_until is kept that long from the first attempt with a tenth of it
-- to spare, and begins anew only when the provider has certainly forgotten every
-- call: which of them began its window nobody can tell. A call to the
-- sandbox is under another key and does not begin it.
--
-- p_batches says which of them one call makes together (null: none), in the order
-- in which they are given. Those that may be called are the members; their places
-- and how many they are is kept with each. The key is the batch's and begins anew
-- with it (batch_until); a member's own key and its window have no part in it.
--
-- p_made says when each request was made, as far as what it says depends on that: a campaign's, which
-- is not kept once it is accepted, is made again of that (deed deliveries show --payload).
create or replace function deed.attempt(
  p_ids      uuid[],
  p_claims   bigint[],
  p_requests bytea[],
  p_window   interval,
  p_lease    interval,
  p_worker   text,
  p_kind     text default null,
  p_account  text default '',
  p_sandbox  boolean default false,
  p_batches  uuid[] default null,
  p_made     timestamptz[] default null
) returns table (id uuid, status text, attempts int, repeat_safe_until timestamptz, why text)
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
  v_now     timestamptz;
  v_erasing boolean;
  v_paused  boolean; -- something is
  v_removed boolean; -- some tenant is, or is being
  v_held    boolean; -- some run is
begin
  -- A call must find its row after any crash.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  -- Until this is committed nobody changes how the provider is served
  -- (deed.register_provider). It takes no transaction id.
  lock table deed.provider_lock in row share mode;
  -- In a statement of its own: what it has waited for, such as a renewal or a
  -- change of lanes, the next one sees.
  perform q.id
  from (select u.* from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
  cross join lateral (
    select c.id from deed.channel_outbox c where c.id = u.id and c.claim = u.claim and c.status = 'queued' for update
  ) q;
  -- Read by now, and not before the wait: somebody may have been erased in it.
  v_now := clock_timestamp();
  -- Mostly there is nothing of these, and then nothing to be asked of each.
  select exists (select from deed.erasing), exists (select from deed.pauses), exists (select from deed.tenant_removals), exists (select from deed.delivery_holds)
  into v_erasing, v_paused, v_removed, v_held;
  return query
  with mine as (
    select q.place, q.request, q.tenant_id, q.skip, u.batch, u.made, u.n, case when q.why not in ('paused', 'quiet') or q.skip is null then q.why end as why, q.loud
    from (select u.* from unnest(p_ids, p_claims, p_requests, p_batches, p_made) with ordinality u(id, claim, request, batch, made, n) order by u.id) u
    cross join lateral (
      select c.ctid as place, u.request, c.tenant_id, t.loud, case when c.expires_at <= v_now then 'expired' when r.cancelled_at is not null then 'cancelled'
          when r.paused_at is null and c.attempts = 0 and c.deferred_since is null and c.unsettled_since is null
            and coalesce(t.due + (r.expires_at - r.last_due), r.expires_at) <= v_now
            and coalesce(t.due + (r.expires_at - r.last_due), r.expires_at) + deed.held_up(c.provider, c.run_id, r.options, (
              select m.zone from deed.audience_members m where m.contact_id = c.contact_id and m.audience_id = r.audience_id
            ), coalesce(t.due, r.scheduled_for), v_now) <= v_now then 'expired'
          when v_erasing and (deed.is_being_erased(c.tenant_id, c.channel, c.recipient, c.created_at) or deed.is_copy_being_erased(c.tenant_id, c.cc, c.created_at)
            or exists (select from deed.contacts k where k.id = c.contact_id and k.erased_at is not null)) then 'erased' else (
          select 'suppressed: ' || left(s.reason, case when c.unsettled_since is null then 180 else 140 end)
          from deed.suppressed(c.tenant_id, c.channel, coalesce(a.folded, lower(c.recipient)), c.purpose, v_now) s
          union all
          select 'suppressed, of those who get a copy: ' || left(s.reason, case when c.unsettled_since is null then 150 else 110 end)
          from deed.suppressed_copy(c.tenant_id, c.cc, c.purpose, v_now) s
          union all
          select 'not an address' where a.folded is null
          union all
          select v.reason from deed.revoked(c.tenant_id, c.contact_id, c.channel, c.purpose) v
          limit 1
        ) end || case when c.unsettled_since is not null then '; an earlier call may have been accepted' else '' end as skip,
        case
          when exists (
            select from deed.providers p
            where p.name = c.provider and p_kind is not null and (p.kind, p.account, p.sandbox) is distinct from (p_kind, p_account, p_sandbox)
          ) then 'replaced'
          when p_kind is not null and c.request_kind is not null
            and (c.request_kind, c.request_account) is distinct from (p_kind, p_account) then 'foreign'
          when p_sandbox and c.unsettled_since is not null then 'waits'
          when v_paused and exists (
            select from (values ('', '00000000-0000-0000-0000-000000000000'::uuid), (c.lane, c.tenant_id)) d(destination, tenant_id)
            join deed.pauses p using (destination, tenant_id)
            where p.provider = c.provider and (p.probe, p.probe_claim) is distinct from (c.id, c.claim)
          ) or v_removed and exists (select from deed.tenant_removals r where r.tenant_id = c.tenant_id)
            or v_held and c.run_id is not null and exists (select from deed.delivery_holds h where h.run_id = c.run_id) then 'paused'
          when t.loud > v_now then 'quiet'
        end as why
      from deed.channel_outbox c
      left join lateral (
        select r.id, r.audience_id, r.cancelled_at, r.paused_at, r.created_at, r.scheduled_for, r.expires_at, r.last_due, r.zones, r.options
        from deed.campaign_runs r where c.run_id is not null and r.id = c.run_id
        offset 0 -- or it would be looked for, and the next one called, of what has no run
      ) r on true
      left join lateral (
        select t.due, t.loud
        from deed.time_in(r.options, r.created_at, r.scheduled_for,
          (select m.zone from deed.audience_members m where m.contact_id = c.contact_id and m.audience_id = r.audience_id), v_now) t
        where r.zones is not null
        offset 0
      ) t on true
      cross join lateral (select deed.fold_address(c.channel, c.recipient) as folded offset 0) a -- once
      where c.id = u.id and c.claim = u.claim and c.status = 'queued'
      for update of c
    ) q
  ),
  let_go as (
    update deed.channel_outbox c
    set claim = null, claimed_at = null, claimed_by = null, lease_until = null,
      process_after = case when m.why in ('foreign', 'waits') then v_now + interval '1 minute' * (0.5 + random()) when m.why = 'quiet' then m.loud else c.process_after end,
      last_error = case m.why when 'foreign' then format('it was first called through the account %s (%s), and %s serves this provider through %s (%s)',
        coalesce(nullif(c.request_account, ''), 'without a name'), c.request_kind, p_worker, coalesce(nullif(p_account, ''), 'one without a name'), p_kind)
        else c.last_error end,
      updated_at = v_now
    from mine m
    where c.ctid = m.place and m.why is not null
    returning c.id, c.status, c.attempts, c.repeat_safe_until, m.why
  ),
  numbered as (
    select m.*, null::bigint as batch_place, null::bigint as batch_size from mine m where m.why is null and m.batch is null
    union all
    select m.*, row_number() over w, count(*) over (partition by m.batch, m.skip is null)
    from mine m
    where m.why is null and m.batch is not null
    window w as (partition by m.batch, m.skip is null order by m.n)
  ),
  done as (
    update deed.channel_outbox c
    set status = case when m.skip is null then 'sending' else 'skipped' end,
      skipped = m.skip is not null,
      skip_reason = m.skip,
      request = coalesce(c.request, case when m.skip is null then m.request end),
      made_at = case when c.request is null and m.skip is null then m.made else c.made_at end,
      attempts = c.attempts + case when m.skip is null then 1 else 0 end,
      first_called_at = coalesce(c.first_called_at, case when m.skip is null then v_now end),
      called_at = case when m.skip is null then v_now else c.called_at end,
      repeat_safe_until = case
        when m.skip is not null or p_window is null or p_sandbox or m.batch is not null then c.repeat_safe_until
        when c.repeat_safe_until is null or v_now > c.called_at + p_window * 1.1 then v_now + p_window * 0.9
        else c.repeat_safe_until end,
      batch_id = case when m.skip is null then m.batch else c.batch_id end,
      batch_place = case when m.skip is not null then c.batch_place when m.batch is not null then m.batch_place end,
      batch_size = case when m.skip is not null then c.batch_size when m.batch is not null then m.batch_size end,
      batch_until = case when m.skip is null and m.batch is not null then v_now + p_window * 0.9 end,
      sandbox = case when m.skip is null then p_sandbox else c.sandbox end,
      request_kind = coalesce(c.request_kind, case when m.skip is null then p_kind end),
      request_account = coalesce(c.request_account, case when m.skip is null and p_kind is not null then p_account end),
      finished_at = case when m.skip is not null then v_now end,
      claimed_at = case when m.skip is null then c.claimed_at end,
      claimed_by = case when m.skip is null then c.claimed_by end,
      lease_until = case when m.skip is null then v_now + p_lease end,
      due = false, -- deed.mark_due would find the same, a row at a time
      updated_at = v_now
    from numbered m
    where c.ctid = m.place
    returning c.id, c.tenant_id, c.run_id, c.status, c.attempts, c.repeat_safe_until, c.skip_reason, split_part(split_part(c.skip_reason, ':', 1), ';', 1) as kind
  ),
  audited as (
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details)
    select d.tenant_id, d.run_id, p_worker, 'attempt', 'delivery', case when count(*) = 1 then min(d.id::text) end, 'queued', d.status,
      count(*), nullif(jsonb_strip_nulls(jsonb_build_object('ids', case when count(*) > 1 then jsonb_agg(d.id) end, 'kind', d.kind)), '{}')
    from done d
    group by d.tenant_id, d.run_id, d.status, d.kind
  )
  select d.id, d.status, d.attempts, d.repeat_safe_until, d.skip_reason from done d
  union all
  select l.id, l.status, l.attempts, l.repeat_safe_until, l.why from let_go l;
end
$$;
