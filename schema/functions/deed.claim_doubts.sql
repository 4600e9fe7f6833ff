-- deed.claim_doubts: take over deliveries of a provider whose outcome is in doubt.
--
-- First marks as such those that are sending under a lease that has run out:
-- whoever was calling is gone. They are looked for among those whose time had come, as it has of whatever
-- is claimed but for the later members of a batch, whose first one leads to them. Then, of what is in doubt, due, and not held for
-- a person, settles what this provider can say nothing about by its guarantee
-- (D5): at_least_once goes back to queued, a back-off away as after a known failure
-- (p_base and p_jitter as in deed.settle), dead if its attempts are spent;
-- at_most_once is held. The rest is leased and returned, with what to do:
-- repeat, the same request under the
-- same key while the provider's window is open, past it never, nor to one who
-- has been suppressed since; or look_up.
-- Nothing but that first mark is made of calls that went to the real recipient
-- while p_sandbox is on, or where deed.providers says otherwise than p_kind,
-- p_account and p_sandbox; nor of what was called through another account. They
-- wait. A call to the sandbox leaves no doubt about anybody: what was being
-- sent there goes back to queued, or is dead if its attempts are spent.
-- What has expired is not repeated. What is paused is not either; where a pause
-- is over, one repeat finds out whether it may end (deed.pauses).
-- A repeat is counted as an attempt. p_patience bounds for how long look-ups
-- are tried; an answer that the provider does not have it ends them too.
--
-- What is returned takes turns as deed.take_due says, and tokens: two for a
-- repeat whose refusal is looked into. A lease that ran out is counted: after
-- max_attempts + 10 of them the delivery is held for a person, as its worker dies
-- with it (O17); from the second on it is claimed alone, every other time.
-- p_batches says whether the provider takes batches; null, the caller knows of
-- none, and leaves them. A batch is claimed whole, under one claim, when its first
-- member's turn comes, if every member is there to be repeated; its
-- call costs what one delivery's does. One that may not be is broken up
-- (deed.break_batches), and its members are settled without a key.
--
-- With p_places a last row, whose id is null, has walk for the next claim, and a
-- row whose action is told, and whose claim is null, has in walk what was decided
-- of a delivery here, for the log.
create or replace function deed.claim_doubts(
  p_provider     text,
  p_worker       text,
  p_limit        int,
  p_lease        interval,
  p_has_key      boolean,
  p_look_up      boolean,
  p_delay        interval default interval '0',
  p_patience     interval default interval '1 hour',
  p_max_attempts int default 5,
  p_kind         text default null,
  p_account      text default '',
  p_sandbox      boolean default false,
  p_lanes        text[] default '{}',
  p_rooms        int[] default '{}',
  p_room         int default null,
  p_bytes        bigint default null,
  p_places       jsonb default null,
  p_batches      boolean default null,
  p_base         interval default interval '5 seconds',
  p_jitter       float8[] default '{0.5,1}'
) returns table (
  id uuid, claim bigint, tenant_id uuid, workspace_id uuid, idempotency_key bytea, channel text, lane text,
  recipient text, recipient_id text, payload jsonb, request bytea, guarantee text, attempts int,
  correlation_id text, channel_message_id uuid, action text, called_at timestamptz, walk jsonb, batch_id uuid, batch_place int, batch_size int
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_places tid[];
  v_walk   jsonb;
  v_alone  tid;
  v_mates  tid[] := '{}'; -- of the first members
  v_whole  uuid[] := '{}';
  v_lost   tid[];
  v_claim  bigint;
  v_paused boolean := exists (select from deed.pauses p where p.provider = p_provider);
  v_shut   boolean := v_paused and coalesce(deed.pause_allows(p_provider, '', null) = 0, false);
begin
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim_doubts: worker must have 1 to 200 characters' using errcode = 'DDARG';
  end if;
  if p_lease is null or p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'claim_doubts: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;

  v_lost := array(
    select c.ctid from deed.channel_outbox c
    where c.provider = p_provider and c.status = 'sending' and c.held_at is null and c.ord <= v_now and c.lease_until <= v_now
    order by c.ord
    limit 1000
    for update skip locked
  );
  if v_lost <> '{}' then
    v_lost := v_lost || array(
      select m.place
      from (
        select distinct o.batch_id from unnest(v_lost) u(place)
        cross join lateral (select d.batch_id from deed.channel_outbox d where d.ctid = u.place and d.batch_until is not null offset 0) o
      ) b
      cross join lateral (
        select d.ctid as place from deed.channel_outbox d
        where d.provider = p_provider and d.status = 'sending' and d.batch_id = b.batch_id and d.batch_until is not null
          and d.held_at is null and d.ord > v_now and d.lease_until <= v_now
        for update skip locked
      ) m
    );
    return query
    with lost as (
      select u.place, c.id, c.tenant_id, c.claim, c.attempts, c.sandbox, c.called_at, c.claimed_at, c.claimed_by
      from unnest(v_lost) u(place)
      cross join lateral (select d.* from deed.channel_outbox d where d.ctid = u.place and d.sandbox offset 0) c
    ),
    noted as ( -- of a look-up that was lost there is nothing to keep
      insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, outcome, sandbox, at, began_at, worker, error)
      select l.id, l.tenant_id, l.claim, l.attempts, 'lost', l.sandbox, v_now, l.called_at, l.claimed_by, 'the lease ran out during the call'
      from lost l
      where l.called_at >= l.claimed_at
      on conflict do nothing
    ),
    freed as (
      update deed.channel_outbox c
      set status = case when c.attempts >= coalesce(c.max_attempts, p_max_attempts) then 'dead' else 'queued' end,
        last_error = format('the lease of %s ran out during a call to the sandbox', c.claimed_by),
        lost_claims = c.lost_claims + 1, process_after = v_now, claim = null, claimed_at = null, claimed_by = null, lease_until = null,
        finished_at = case when c.attempts >= coalesce(c.max_attempts, p_max_attempts) then v_now end,
        updated_at = v_now
      from lost l
      where c.ctid = l.place
      returning c.id, c.tenant_id, c.run_id, c.status, c.channel, c.attempts, c.correlation_id, c.channel_message_id, false as held, c.last_error as reason
    ),
    audited as (
      insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details, reason)
      select d.tenant_id, d.run_id, p_worker, 'settle', 'delivery', case when count(*) = 1 then min(d.id::text) end, 'sending', d.status, count(*),
        case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(d.id)) end, 'the lease ran out during a call to the sandbox'
      from freed d
      group by d.tenant_id, d.run_id, d.status
    )
    select d.id, null::bigint, d.tenant_id, null::uuid, null::bytea, d.channel, null::text, null::text, null::text, null::jsonb, null::bytea, null::text, d.attempts,
      d.correlation_id, d.channel_message_id, 'told', null::timestamptz, jsonb_build_object('status', d.status, 'held', d.held, 'reason', d.reason), null::uuid, null::int, null::int
    from freed d
    where p_places is not null;

    return query
    with lost as (
      select u.place, c.id, c.tenant_id, c.claim, c.attempts, c.sandbox, c.called_at, c.claimed_at, c.claimed_by
      from unnest(v_lost) u(place)
      cross join lateral (select d.* from deed.channel_outbox d where d.ctid = u.place and not d.sandbox offset 0) c
    ),
    noted as (
      insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, outcome, sandbox, at, began_at, worker, error)
      select l.id, l.tenant_id, l.claim, l.attempts, 'lost', l.sandbox, v_now, l.called_at, l.claimed_by, 'the lease ran out during the call'
      from lost l
      where l.called_at >= l.claimed_at
      on conflict do nothing
    ),
    doubted as (
      update deed.channel_outbox c
      set doubt_since = coalesce(c.doubt_since, v_now),
        doubt_reason = coalesce(c.doubt_reason, format('the lease of %s ran out during the call', c.claimed_by)),
        -- The first member of a batch is due in the others' stead, whose time may have come only for this (deed.break_batches).
        process_after = case when c.batch_place > 1 and c.batch_until > v_now then c.batch_until when c.doubt_since is not null then c.process_after
          else v_now + p_delay end,
        lost_claims = c.lost_claims + 1, claimed_at = null, claimed_by = null, lease_until = null, updated_at = v_now
      from lost l
      where c.ctid = l.place
      returning c.id, c.tenant_id, c.run_id, c.status, c.channel, c.attempts, c.correlation_id, c.channel_message_id, false as held, c.doubt_reason as reason
    ),
    audited as (
      insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details, reason)
      select d.tenant_id, d.run_id, p_worker, 'doubt', 'delivery', case when count(*) = 1 then min(d.id::text) end, 'sending', 'sending', count(*),
        case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(d.id)) end, 'the lease ran out during the call'
      from doubted d
      group by d.tenant_id, d.run_id
    )
    select d.id, null::bigint, d.tenant_id, null::uuid, null::bytea, d.channel, null::text, null::text, null::text, null::jsonb, null::bytea, null::text, d.attempts,
      d.correlation_id, d.channel_message_id, 'told', null::timestamptz, jsonb_build_object('status', d.status, 'held', d.held, 'reason', d.reason), null::uuid, null::int, null::int
    from doubted d
    where p_places is not null;
  end if;

  lock table deed.provider_lock in row share mode; -- as in deed.attempt: what is claimed now is called
  if p_sandbox or exists (
    select from deed.providers p
    where p.name = p_provider and p_kind is not null and (p.kind, p.account, p.sandbox) is distinct from (p_kind, p_account, p_sandbox)
  ) then
    return;
  end if;

  if p_batches is not null then
    perform deed.break_batches(p_provider, not p_batches);
  end if;
  -- Those about which nothing can be learnt. That anything is due is asked for first: a dispatcher claims several
  -- times a second, and each session would plan what follows, and every claim begin with it, to find nothing.
  perform from deed.channel_outbox c
  where c.provider = p_provider and c.status = 'sending' and c.doubt_since is not null and c.held_at is null
    and c.lease_until is null and c.ord <= v_now
  order by c.ord
  limit 1;
  if found then
    return query
    with open as (
      select c.ctid as place,
        case when c.guarantee = 'at_most_once' or c.lost_claims >= coalesce(c.max_attempts, p_max_attempts) + 10 then 'sending' when c.attempts >= coalesce(c.max_attempts, p_max_attempts) then 'dead' else 'queued' end as becomes
      from deed.channel_outbox c
      where c.provider = p_provider and c.status = 'sending' and c.doubt_since is not null and c.held_at is null
        and c.lease_until is null and c.ord <= v_now
        and (p_kind is null or c.request_kind is null or (c.request_kind, c.request_account) = (p_kind, p_account))
        and (c.lost_claims >= coalesce(c.max_attempts, p_max_attempts) + 10
          or not (coalesce(c.batch_id is null and p_has_key and v_now < c.repeat_safe_until and v_now < coalesce(c.expires_at, 'infinity'), false) and not exists (
            select from deed.suppressed(c.tenant_id, c.channel, coalesce(deed.fold_address(c.channel, c.recipient), lower(c.recipient)), c.purpose, v_now)
          ) and not exists (select from deed.suppressed_copy(c.tenant_id, c.cc, c.purpose, v_now))
            and not exists (select from deed.revoked(c.tenant_id, c.contact_id, c.channel, c.purpose)))
          and not coalesce(v_now < c.batch_until, false)
          and not (p_look_up and v_now < c.doubt_since + p_patience))
      order by c.ord
      limit 1000
      for update skip locked
    ),
    decided as (
      update deed.channel_outbox c
      set status = o.becomes,
        held_at = case o.becomes when 'sending' then v_now end,
        doubt_since = case o.becomes when 'sending' then c.doubt_since end,
        doubt_reason = case o.becomes when 'sending' then left(case when c.lost_claims >= coalesce(c.max_attempts, p_max_attempts) + 10
          then format('claim lost %s times: each time the worker died or froze before it could report; ', c.lost_claims) else '' end
          || c.doubt_reason, 4000) end,
        last_error = coalesce(c.doubt_reason, c.last_error),
        process_after = case o.becomes when 'queued' then least(c.expires_at,
          v_now + least(p_base * 2 ^ least(c.attempts - 1, 20), interval '1 hour') * (p_jitter[1] + random() * (p_jitter[2] - p_jitter[1])))
          else c.process_after end,
        batch_until = null,
        claim = case o.becomes when 'queued' then null else c.claim end,
        finished_at = case o.becomes when 'dead' then v_now end,
        updated_at = v_now
      from open o
      where c.ctid = o.place
      returning c.id, c.tenant_id, c.run_id, c.status, c.channel, c.recipient, c.attempts, c.correlation_id, c.channel_message_id, c.held_at is not null as held, coalesce(c.doubt_reason, c.last_error) as reason
    ),
    audited as (
      insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details, reason)
      select d.tenant_id, d.run_id, p_worker, case d.status when 'sending' then 'hold' else 'reconcile' end, 'delivery',
        case when count(*) = 1 then min(d.id::text) end, 'sending', d.status, count(*),
        case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(d.id)) end, 'by its guarantee'
      from decided d
      group by d.tenant_id, d.run_id, d.status
    )
    select d.id, null::bigint, d.tenant_id, null::uuid, null::bytea, d.channel, null::text, d.recipient, null::text, null::jsonb, null::bytea, null::text, d.attempts,
      d.correlation_id, d.channel_message_id, 'told', null::timestamptz, jsonb_build_object('status', d.status, 'held', d.held, 'reason', d.reason), null::uuid, null::int, null::int
    from decided d
    where p_places is not null;
  end if;

  select t.taken, t.walk into v_places, v_walk
  from deed.take_due(p_provider, 'sending', p_limit, p_lanes, p_rooms, p_room, p_bytes, case when p_has_key and p_look_up then 2 else 1 end, not p_look_up,
    p_kind, p_account, p_places) t;
  if cardinality(v_places) > 0 then
    select u.place into v_alone
    from unnest(v_places) with ordinality u(place, n)
    cross join lateral (select o.lost_claims from deed.channel_outbox o where o.ctid = u.place offset 0) c
    where c.lost_claims > 1
    order by u.n
    limit 1;
    if v_alone is not null then
      v_places := array(select c.ctid from deed.channel_outbox c where c.ctid = any (v_places) and c.lost_claims < 2);
      if random() < 0.5 or cardinality(v_places) = 0 then -- their turn and their tokens are spent
        v_places := array[v_alone];
      end if;
    end if;
    if p_batches then
      v_mates := array(
        select m.place
        from unnest(v_places) u(place)
        cross join lateral (select d.batch_id from deed.channel_outbox d where d.ctid = u.place and d.batch_place = 1 and d.batch_until is not null offset 0) h
        cross join lateral (
          select d.ctid as place from deed.channel_outbox d
          where d.provider = p_provider and d.status = 'sending' and d.batch_id = h.batch_id and d.batch_until is not null and d.batch_place > 1
            and d.doubt_since is not null and d.held_at is null and d.lease_until is null
          for update skip locked
        ) m
      );
      -- With the first one, and not once more where their own time has come, too.
      v_places := array(select u.place from unnest(v_places) u(place) where u.place <> all (v_mates));
      -- In a statement of its own, which sees them as they were locked.
      v_whole := array(
        select o.batch_id
        from unnest(v_places || v_mates) u(place)
        cross join lateral (select d.batch_id, d.batch_size from deed.channel_outbox d where d.ctid = u.place and d.batch_until is not null offset 0) o
        group by o.batch_id
        having count(*) = max(o.batch_size)
      );
    end if;
    v_claim := deed.claim_number();
    return query
    with open as (
      select c.place, r.repeats, c.batch_id
      -- Of those that were taken for a look any tenant's may be the probe, and of it any.
      from (
        select o.* from unnest(v_places) u(place)
        cross join lateral (select d.ctid as place, d.* from deed.channel_outbox d where d.ctid = u.place offset 0) o
        order by hashtextextended(o.tenant_id::text, v_claim), random()
      ) c
      cross join lateral (
        select case when c.batch_id is not null then c.batch_id = any (v_whole)
          else coalesce(p_has_key and v_now < c.repeat_safe_until and v_now < coalesce(c.expires_at, 'infinity'), false) and not exists (
            select from deed.suppressed(c.tenant_id, c.channel, coalesce(deed.fold_address(c.channel, c.recipient), lower(c.recipient)), c.purpose, v_now)
          ) and not exists (select from deed.suppressed_copy(c.tenant_id, c.cc, c.purpose, v_now))
            and not exists (select from deed.revoked(c.tenant_id, c.contact_id, c.channel, c.purpose)) end
      ) r(repeats)
      where (r.repeats or not coalesce(v_now < c.batch_until, false))
        and (r.repeats or (p_look_up and v_now < c.doubt_since + p_patience))
        and (p_kind is null or c.request_kind is null or (c.request_kind, c.request_account) = (p_kind, p_account))
        and (not r.repeats or not v_paused or (not v_shut and deed.take_probe(p_provider, c.tenant_id, c.lane, c.id, v_claim)))
    ),
    chosen as (
      select o.place, o.repeats from open o
      union all
      select u.place, true
      from unnest(v_mates) u(place)
      cross join lateral (select d.batch_id from deed.channel_outbox d where d.ctid = u.place offset 0) m
      where m.batch_id in (select o.batch_id from open o where o.repeats)
    )
    update deed.channel_outbox c
    set claimed_at = v_now, claimed_by = p_worker, lease_until = v_now + p_lease, claim = v_claim,
      attempts = c.attempts + case when o.repeats then 1 else 0 end, called_at = case when o.repeats then v_now else c.called_at end,
      updated_at = v_now
    from chosen o
    where c.ctid = o.place -- locked above: they stay where they are
    returning c.id, v_claim, c.tenant_id, c.workspace_id, c.idempotency_key, c.channel, c.lane, c.recipient, c.recipient_id,
      c.payload, c.request, c.guarantee, c.attempts, c.correlation_id, c.channel_message_id,
      case when o.repeats then 'repeat' else 'look_up' end, c.called_at, null::jsonb,
      case when o.repeats then c.batch_id end, c.batch_place::int, c.batch_size::int;
  end if;
  if p_places is not null then
    walk := v_walk;
    return next;
  end if;
end
$$;
