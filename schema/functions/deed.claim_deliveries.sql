-- deed.claim_deliveries: lease up to p_limit queued deliveries of a provider.
--
-- Which, and what p_lanes, p_rooms, p_room, p_bytes and p_places are, is told at
-- deed.take_due: tenants, their runs and lanes in turn, and of what is due only,
-- within the limits of the provider and of the domains; what is queued and not
-- due costs nothing. Rows that another claim holds are skipped. What is paused is
-- left out; where a pause is over, one delivery is claimed that finds out whether
-- it may end (deed.pauses).
--
-- A claimed delivery is still queued: nobody has called anything (D4). claim is
-- the fencing token of the rows. lost_claims above 0 says that this claim took
-- over one that had run out (O17): from the second on a delivery is claimed
-- alone, every other time that its turn comes, and after max_attempts + 10 it is
-- dead, which says so where an earlier call may have been accepted; p_max_attempts
-- is for rows that have none of their own.
--
-- p_batch is how many one call may take; call says of each with which others it
-- may be called together, and why some never are deed.take_due says.
--
-- What campaigns owe is claimed only with p_runs, by who renders it at the attempt; run_id
-- says which it is.
--
-- With p_places a last row, whose id is null, has walk: what deed.take_due says,
-- and in ended those that have died so, with their ids, for the log.
create or replace function deed.claim_deliveries(
  p_provider     text,
  p_worker       text,
  p_limit        int,
  p_lease        interval,
  p_lanes        text[] default '{}',
  p_rooms        int[] default '{}',
  p_room         int default null,
  p_bytes        bigint default null,
  p_places       jsonb default null,
  p_max_attempts int default 5,
  p_batch        int default 1,
  p_runs         boolean default false
) returns table (
  id uuid, claim bigint, tenant_id uuid, workspace_id uuid, idempotency_key bytea, channel text, lane text,
  recipient text, recipient_id text, payload jsonb, request bytea, guarantee text, attempts int,
  correlation_id text, channel_message_id uuid, lost_claims int, taken_over boolean, walk jsonb, call int, purpose text, contact_id uuid, run_id uuid
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_places tid[];
  v_all    tid[];
  v_calls  int[];
  v_walk   jsonb;
  v_lost   int[];
  v_ended  jsonb;
  v_alone  tid;
  v_claim  bigint;
begin
  if p_limit is null or p_limit < 0 or p_limit > 10000 then
    raise exception 'claim_deliveries: limit must be from 0 to 10000, got %', p_limit using errcode = 'DDARG';
  end if;
  if coalesce(p_worker, '') = '' or length(p_worker) > 200 then
    raise exception 'claim_deliveries: worker must have 1 to 200 characters' using errcode = 'DDARG';
  end if;
  if p_batch is null or p_batch not between 1 and 1000 then
    raise exception 'claim_deliveries: a batch must be from 1 to 1000, got %', p_batch using errcode = 'DDARG';
  end if;
  if p_lease is null or p_lease not between interval '1 second' and interval '24 hours' then
    raise exception 'claim_deliveries: lease must be from 1 second to 24 hours, got %', p_lease using errcode = 'DDARG';
  end if;
  if cardinality(p_lanes) is distinct from cardinality(p_rooms) then
    raise exception 'claim_deliveries: the lanes and their rooms do not belong together' using errcode = 'DDARG';
  end if;

  select t.taken, t.walk, t.taken, t.calls into v_places, v_walk, v_all, v_calls
  from deed.take_due(p_provider, 'queued', p_limit, p_lanes, p_rooms, p_room, p_bytes, 1, true, null, null, p_places, p_batch, p_runs) t;

  v_lost := array(
    select case when c.claim is null then c.lost_claims else c.lost_claims + 1 end
    from unnest(v_places) with ordinality u(place, n)
    cross join lateral (select o.claim, o.lost_claims from deed.channel_outbox o where o.ctid = u.place offset 0) c
    order by u.n
  );
  if 1 < any (v_lost) then
    with spent as (
      update deed.channel_outbox c
      set status = 'dead', finished_at = v_now, lost_claims = u.lost, claimed_at = null, claimed_by = null, lease_until = null, updated_at = v_now,
        last_error = format('claim lost %s times: each time the worker died or froze before it could report', u.lost)
          || case when c.unsettled_since is not null then '; an earlier call may have been accepted' else '' end
      from unnest(v_places, v_lost) u(place, lost)
      where c.ctid = u.place and u.lost >= coalesce(c.max_attempts, p_max_attempts) + 10
      returning c.id, c.tenant_id, c.run_id, c.channel, c.attempts, c.correlation_id, c.channel_message_id, u.place, c.last_error
    ),
    audited as (
      insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason)
      select s.tenant_id, s.run_id, p_worker, 'settle', 'delivery', s.id::text, 'queued', 'dead', s.last_error
      from spent s
    ),
    living as (
      select u.place, u.lost, u.n
      from unnest(v_places, v_lost) with ordinality u(place, lost, n)
      where not exists (select from spent s where s.place = u.place)
    )
    select (
        select jsonb_agg(jsonb_build_object('id', s.id, 'tenant', s.tenant_id, 'channel', s.channel, 'attempts', s.attempts,
          'correlation_id', s.correlation_id, 'channel_message_id', s.channel_message_id, 'from', 'queued', 'status', 'dead', 'reason', s.last_error))
        from spent s
      ), (select l.place from living l where l.lost > 1 order by l.n limit 1),
      array(select l.place from living l where l.lost < 2 order by l.n)
    into v_ended, v_alone, v_places;
    if v_alone is not null and (random() < 0.5 or cardinality(v_places) = 0) then
      v_places := array[v_alone];
    end if;
    v_walk := v_walk || jsonb_build_object('ended', v_ended);
  end if;

  if cardinality(v_places) > 0 then
    v_claim := deed.claim_number();
    perform deed.name_probes(p_provider, v_places, v_claim);
    return query
    with free as (
      -- to say which were taken over
      select c.ctid as place, c.claim is not null as taken_over from deed.channel_outbox c where c.ctid = any (v_places)
    )
    update deed.channel_outbox c
    set claimed_at = v_now, lease_until = v_now + p_lease, claim = v_claim, claimed_by = p_worker, updated_at = v_now,
      lost_claims = c.lost_claims + case when f.taken_over then 1 else 0 end
    from free f
    where c.ctid = f.place -- locked above: they stay where they are
    returning c.id, v_claim, c.tenant_id, c.workspace_id, c.idempotency_key, c.channel, c.lane,
      c.recipient, c.recipient_id, c.payload, c.request, c.guarantee, c.attempts,
      c.correlation_id, c.channel_message_id, c.lost_claims, f.taken_over, null::jsonb,
      case when p_batch > 1 then v_calls[array_position(v_all, f.place)] end, c.purpose, c.contact_id, c.run_id;
  end if;
  if p_places is not null then
    walk := v_walk;
    return next;
  end if;
end
$$;
