-- deed.settle: record what became of claimed deliveries, a batch at once.
--
-- Only rows whose claim is still the caller's; returns what each of those has
-- become, and where the audit log tells of it what it was. Repeating it is
-- harmless. Who waits for one longer than a second gets 55P03, and nothing of the call is
-- recorded: it is asked again in smaller parts, so that what somebody keeps locked holds up
-- itself. With p_leave a bad address that somebody has in an open transaction (deed.suppress_bad) holds up
-- its own delivery alone: of that nothing is recorded, and it is returned as busy. p_kinds:
--
--   accepted   the provider took it: sent, called or posted, by its channel
--   refused    the provider will never take it: failed
--   bad_address  as refused, and its address is suppressed for everything, unless it
--              was the sandbox's
--   opted_out  the provider took it not, since the recipient wants none: skipped
--   later      certainly not done: queued, p_after seconds or a back-off away,
--              dead when its attempts are spent; in doubt it stays so (below)
--   deferred   certainly not done, refused for now: queued, p_after seconds or a
--              back-off of its own away, no attempt counted; dead when p_give_up
--              is over since the first time, without the time in which it was due
--              again and nobody could be called
--   unreachable  certainly not done, its destination is away: queued until the
--              pause ends, behind the others, no attempt counted; dead as deferred, but
--              that the time counts for which its destination may have been paused
--   outage     certainly not done, the provider is away: queued until the pause
--              ends, behind the others, no attempt counted
--   release    not attempted: queued, no attempt counted, p_after seconds away
--   unrepeated in doubt, claimed to be repeated, and nothing reached the
--              provider: still in doubt, the repeat is not counted, as it is not by what is
--              certainly not done (deferred, unreachable, outage)
--   apart      refused as a member of a batch, or with all of it: queued, no attempt
--              counted, and called alone from now on
--   unusable   no request could be made of it: failed
--   unknown    may be done: in doubt (D5)
--   in_use     the same, and the provider answers: the key is another request's
--   undecided  in doubt, and nothing the provider offers tells: at_most_once is
--              held for a person, at_least_once goes back to queued, a back-off
--              away, and is dead when its attempts are spent
--
-- Of a row in doubt, what a repeated call says about itself proves nothing
-- about the first one: only accepted ends the doubt, later keeps it, the refusals are
-- as undecided, unless the only call that was ever made says them, late. What went to
-- the sandbox was not sent to anybody: accepted is
-- skipped, and unknown is as later. Of a row that was put back in doubt
-- (unsettled_since) what a later call says proves nothing about the earlier one
-- either: where it would have failed or be dead, at_most_once is held, and
-- at_least_once is dead, never failed. The back-off is p_base * 2^(attempts-1), at most an hour, times
-- a random factor between p_jitter's two; of what is deferred it is p_defer *
-- 2^deferrals, at most half an hour, and not past the end of p_give_up; never is
-- it past expires_at. p_max_attempts is for rows that have none of their own.
-- Whatever shows that the provider answers ends the pause whose probe it was:
-- resumed, and of which destinations. What was sent for a campaign keeps the SHA-256 of its request, and not its bytes,
-- which can be made again of what never changes. Each probe is another delivery, since what one finds may be its own
-- doing: from the fourth time on it waits, for as long as the pause's steps are.
create or replace function deed.settle(
  p_ids          uuid[],
  p_claims       bigint[],
  p_kinds        text[],
  p_message_ids  text[],
  p_errors       text[],
  p_after        float8[],
  p_worker       text,
  p_base         interval default interval '5 seconds',
  p_jitter       float8[] default '{0.5,1}',
  p_max_attempts int default 5,
  p_defer        interval default interval '1 minute',
  p_give_up      interval default interval '24 hours',
  p_leave        boolean default false
) returns table (id uuid, status text, attempts int, process_after timestamptz, in_doubt boolean, held boolean, resumed boolean, was text, destinations text[], busy boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set lock_timeout = '1s'
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := clock_timestamp();
  v_busy uuid[] := '{}';
begin
  if not (p_kinds <@ array['accepted', 'refused', 'bad_address', 'opted_out', 'later', 'deferred', 'unreachable', 'outage', 'release', 'unrepeated', 'apart', 'unusable', 'unknown', 'in_use', 'undecided']) then
    raise exception 'settle: unknown kind in %', p_kinds using errcode = 'DDARG';
  end if;
  -- What is lost of it would have to be settled by hand.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  -- In a statement of its own: what it has waited for, such as a renewal or a
  -- change of lanes, the next one sees.
  perform q.id
  from (select u.* from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
  cross join lateral (
    select c.id from deed.channel_outbox c where c.id = u.id and c.claim = u.claim and c.status in ('queued', 'sending') for update
  ) q;
  -- By those that are refused so, which are few.
  if 'bad_address' = any (p_kinds) then
    v_busy := deed.suppress_bad(p_ids, p_claims, p_kinds, p_worker, p_leave);
  end if;
  return query
  with mine as (
    select q.*
    from (
      select u.* from unnest(p_ids, p_claims, p_kinds, p_message_ids, p_errors, p_after) u(id, claim, kind, message_id, error, after)
      order by u.id
    ) u
    cross join lateral (
      select c.ctid as place, u.kind, u.message_id, u.after,
        left(case when c.unsettled_since is not null and u.kind <> 'accepted' and not c.sandbox
          then 'an earlier call may have been accepted; the last one: ' else '' end || u.error, 4000) as error, c.status as was, c.doubt_since is not null as doubted,
        coalesce(c.called_at >= c.claimed_at, false) as repeated, -- under this claim, which has neither been settled nor lost since
        u.claim as under, c.deferrals, d.since as deferred_since, d.since + p_give_up as give_up_at, c.provider, c.lane,
        case
          when c.sandbox and c.status = 'sending' and u.kind = 'accepted' then 'sandboxed'
          when c.sandbox and c.status = 'sending' and u.kind in ('unknown', 'in_use', 'undecided', 'unrepeated') then
            case when c.attempts >= coalesce(c.max_attempts, p_max_attempts) then 'dead' else 'later' end
          -- A claim that was lost before anything was called only lets go.
          when c.status = 'queued' and u.kind not in ('unusable') then 'let go'
          when c.unsettled_since is not null and c.doubt_since is null and not c.sandbox and c.status = 'sending'
            and (u.kind in ('refused', 'bad_address', 'opted_out') or (u.kind = 'later' and c.attempts >= coalesce(c.max_attempts, p_max_attempts))
              or (u.kind in ('deferred', 'unreachable') and d.since + p_give_up <= v_now)) then
            case when c.guarantee = 'at_most_once' then 'hold' else 'dead' end
          when c.doubt_since is not null and (u.kind in ('undecided', 'apart') or (u.kind in ('refused', 'bad_address', 'opted_out') and not d.only)) then
            case when c.guarantee = 'at_most_once' then 'hold' when c.attempts >= coalesce(c.max_attempts, p_max_attempts) then 'dead' else 'again' end
          when c.doubt_since is not null and u.kind in ('later', 'deferred', 'unreachable', 'outage', 'release', 'unrepeated') then 'unknown'
          when u.kind in ('in_use', 'undecided', 'unrepeated') then 'unknown'
          when u.kind = 'later' and c.attempts >= coalesce(c.max_attempts, p_max_attempts) then 'dead'
          when u.kind in ('deferred', 'unreachable') and d.since + p_give_up <= v_now then 'given up'
          when u.kind in ('release', 'apart') then 'outage'
          when u.kind = 'bad_address' or (u.kind = 'opted_out' and c.sandbox) then 'refused'
          else u.kind
        end as verdict
      from deed.channel_outbox c
      -- Since when it is refused for now, without the time in which it was due again
      -- and nobody could be called.
      cross join lateral (
        select coalesce(c.deferred_since + coalesce(case when c.process_after between c.deferred_since and c.called_at then
            case when u.kind in ('deferred', 'outage') then c.called_at - c.process_after
              -- For as long its destination may have been left alone (deed.pause); beyond that nobody was there to call.
              when u.kind = 'unreachable' then greatest(c.called_at - c.process_after - interval '65 minutes', interval '0') end
          end, interval '0'), v_now) as since,
          -- The only call that was ever made of it: a repeat is a later one, and a look-up refuses nothing.
          c.called_at is not distinct from c.first_called_at and c.unsettled_since is null as only
      ) d
      where c.id = u.id and c.claim = u.claim and c.status in ('queued', 'sending') and c.id <> all (v_busy)
        and (c.status = 'sending' or u.kind in ('release', 'outage', 'unreachable', 'unusable'))
      for update of c
    ) q
  ),
  judged as (
    select m.*,
      m.verdict in ('accepted', 'sandboxed', 'opted_out', 'refused', 'dead', 'given up', 'unusable') as ended,
      case when m.doubted then m.repeated and m.kind in ('deferred', 'unreachable', 'outage', 'unrepeated')
        else m.verdict in ('deferred', 'unreachable', 'outage', 'given up') end as uncounted,
      m.verdict in ('unknown', 'hold') as stays,
      m.verdict in ('later', 'deferred', 'unreachable', 'outage') and m.kind <> 'apart' as parts,
      -- Behind the others, so that the next probe is another; often so, and it may be
      -- this one's doing.
      case when m.deferrals < 3 then interval '0' else
        least(p_base * 2 ^ least(m.deferrals - 3, 20), interval '5 minutes') * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1])) end as aside
    from mine m
  ),
  done as (
    update deed.channel_outbox c
    set status = case j.verdict
        when 'accepted' then case c.channel when 'voice' then 'called' when 'social' then 'posted' else 'sent' end
        when 'sandboxed' then 'skipped'
        when 'opted_out' then 'skipped'
        when 'refused' then 'failed'
        when 'unusable' then 'failed'
        when 'dead' then 'dead'
        when 'given up' then 'dead'
        when 'unknown' then 'sending'
        when 'hold' then 'sending'
        else 'queued' end,
      attempts = c.attempts - case when j.uncounted then 1 else 0 end,
      deferrals = c.deferrals + case when j.verdict in ('deferred', 'unreachable') or (j.verdict = 'outage' and j.kind = 'outage') then 1 else 0 end,
      deferred_since = case when j.verdict in ('deferred', 'unreachable') or c.deferred_since is not null then j.deferred_since end,
      skipped = j.verdict in ('sandboxed', 'opted_out'),
      skip_reason = case j.verdict when 'sandboxed' then 'sandbox: it went there, and not to its recipient' when 'opted_out' then 'they have opted out, says ' || c.provider end,
      -- The sandbox's own name for it would be taken for a proof.
      provider_message_id = coalesce(case when not c.sandbox then left(j.message_id, 500) end, c.provider_message_id),
      last_error = case when j.verdict in ('accepted', 'sandboxed') then c.last_error
        when j.verdict = 'given up' then left(format('given up after %s: %s', p_give_up, coalesce(j.error, c.last_error)), 4000)
        else coalesce(j.error, c.last_error) end,
      process_after = case j.verdict
        when 'later' then least(c.expires_at, v_now + greatest(make_interval(secs => coalesce(j.after, 0)),
          least(p_base * 2 ^ least(c.attempts - 1, 20), interval '1 hour') * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1]))))
        when 'deferred' then least(c.expires_at, j.give_up_at, v_now + greatest(make_interval(secs => coalesce(j.after, 0)),
          least(p_defer * 2 ^ least(c.deferrals, 20), interval '30 minutes') * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1]))))
        -- The first member of a batch is due in the others' stead.
        when 'unknown' then case when c.batch_place > 1 and c.batch_until > v_now then c.batch_until else v_now end + greatest(make_interval(secs => coalesce(j.after, 0)),
          case when j.doubted then least(p_base * 2 ^ least(c.attempts - 1, 20), interval '1 hour') * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1])) else interval '0' end)
        -- Called again by its guarantee, it waits as after a known failure (deed.claim_doubts, too).
        when 'again' then least(c.expires_at, v_now + least(p_base * 2 ^ least(c.attempts - 1, 20), interval '1 hour') * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1])))
        when 'unreachable' then least(c.expires_at, v_now + j.aside)
        when 'outage' then case when j.kind = 'outage' then least(c.expires_at, v_now + j.aside) else c.process_after end
        -- What could not be made of it now is not tried again at once.
        when 'let go' then case when j.kind = 'release' and j.after > 0 then least(c.expires_at, v_now + make_interval(secs => j.after)) else c.process_after end
        else c.process_after end,
      doubt_since = case when j.stays then coalesce(c.doubt_since, v_now) end,
      doubt_reason = case when j.stays then coalesce(j.error, c.doubt_reason, 'the outcome of the call is unknown') end,
      -- What was certainly not done may be in another batch, unless it was refused in one.
      batch_id = case when j.parts then null else c.batch_id end,
      batch_place = case when j.parts then null else c.batch_place end,
      batch_size = case when j.parts then null else c.batch_size end,
      batch_until = case when j.verdict = 'unknown' then c.batch_until end,
      held_at = case when j.verdict = 'hold' then v_now when j.verdict = 'unknown' then c.held_at end,
      -- What a campaign's run has sent is made again of its content; the bytes go, and their hash stays.
      request = case when j.verdict = 'accepted' and c.run_id is not null then null else c.request end,
      request_sha256 = case when j.verdict = 'accepted' and c.run_id is not null and c.request is not null then sha256(c.request) else c.request_sha256 end,
      sent_at = case when j.verdict = 'accepted' then v_now end,
      finished_at = case when j.ended then v_now end,
      -- Who calls it knows it by its claim until somebody else takes it over.
      claim = case when j.ended or j.stays then c.claim end,
      claimed_at = null, claimed_by = null, lease_until = null,
      updated_at = v_now
    from judged j
    where c.ctid = j.place
    returning c.id, c.tenant_id, c.run_id, c.status, c.attempts, c.process_after, c.doubt_since is not null as in_doubt, c.held_at is not null as held,
      j.was, j.doubted, j.verdict, j.kind, j.under, j.provider, j.lane,
      j.was <> c.status or (c.doubt_since is not null and not j.doubted) or j.verdict = 'hold' as told,
      case j.verdict when 'accepted' then null when 'sandboxed' then c.skip_reason else left(j.error, 2000) end as error
  ),
  freed as (
    delete from deed.pauses p
    using done d
    cross join lateral (values ('', '00000000-0000-0000-0000-000000000000'::uuid), (d.lane, d.tenant_id)) o(destination, tenant_id)
    where d.kind in ('accepted', 'refused', 'bad_address', 'opted_out', 'later', 'deferred', 'in_use')
      and p.provider = d.provider and p.destination = o.destination and p.tenant_id = o.tenant_id and p.probe = d.id and p.probe_claim = d.under
    returning d.id, p.destination
  ),
  audited as (
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    select d.tenant_id, d.run_id, p_worker, case d.verdict when 'unknown' then 'doubt' when 'hold' then 'hold' else 'settle' end,
      'delivery', case when count(*) = 1 then min(d.id::text) end, d.was, d.status, case when count(*) = 1 then min(d.error) end, count(*),
      nullif(jsonb_strip_nulls(jsonb_build_object('ids', case when count(*) > 1 then jsonb_agg(d.id) end, 'after_doubt', case when d.doubted and not d.in_doubt then true end,
        'kind', case when d.verdict <> 'accepted' then d.kind end)), '{}')
    from done d
    where d.told
    group by d.tenant_id, d.run_id, d.was, d.status, d.verdict, d.kind, d.doubted, d.in_doubt
  )
  select d.id, d.status, d.attempts, d.process_after, d.in_doubt, d.held, exists (select from freed f where f.id = d.id), case when d.told then d.was end,
    array(select f.destination from freed f where f.id = d.id order by f.destination), false
  from done d
  union all
  select c.id, c.status, c.attempts, c.process_after, c.doubt_since is not null, c.held_at is not null, false, null, '{}', true
  from unnest(v_busy) b(id)
  cross join lateral (select o.* from deed.channel_outbox o where o.id = b.id) c;
end
$$;
