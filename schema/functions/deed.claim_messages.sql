-- deed.claim_messages: take messages of a source that are due: new ones whose turn
-- it is, those whose lease ran out, and failed ones whose time has come (D8); of a tenant
-- that is being removed none.
--
-- Returns them, with the number of this claim, under which alone their outcome is taken
-- (deed.finish_messages) until the lease ends. A claim that ran out counts as an attempt, and
-- not as a failure, since nothing says that it was begun: from the second on a message is
-- claimed alone, every other time, so that what kills its process each time takes no other
-- along, and after ten it is not claimed again: it is held, for a person, and returned as such.
-- So is one that has failed p_most times.
-- Who has it, and since when, stands in its row; the audit log says who has taken it from
-- whom.
create or replace function deed.claim_messages(
  p_source text,
  p_limit  int,
  p_lease  interval,
  p_most   int,
  p_worker text,
  p_tenant uuid default null
) returns table (
  id uuid, claim bigint, tenant_id uuid, source text, platform_message_id text, contact_id uuid, kind text, sender text, reply_to text,
  text text, body text, attempts int, correlation_id text, received_at timestamptz, held boolean
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_ids   uuid[];
  v_was   text[];
  v_had   text[]; -- who has lost it, since when they had it
  v_lost  int[];
  v_run   uuid[];
  v_held  uuid[];
  v_gone  uuid[]; -- those whose sender was erased while they were run
  v_claim bigint;
begin
  select array_agg(d.id), array_agg(d.status), array_agg(d.had), array_agg(d.lost), coalesce(array_agg(d.id) filter (where d.is_emptied), '{}'),
    coalesce(array_agg(d.id) filter (where (d.lost >= 10 or d.attempts - d.lost >= p_most) and not d.is_emptied), '{}')
  into v_ids, v_was, v_had, v_lost, v_gone, v_held
  from (
    select c.id, c.status, c.attempts, c.emptied_at is not null as is_emptied, c.lost_claims + (c.status = 'accepted' and c.claimed_by is not null)::int as lost,
      case when c.status = 'accepted' then c.claimed_by || ', which had it since ' || to_char(c.claimed_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z,"') end as had
    from deed.channel_messages c
    where c.source = p_source and (p_tenant is null or c.tenant_id = p_tenant) and c.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null)) and coalesce(c.lease_until, c.process_after) < 'infinity' and coalesce(c.lease_until, c.process_after) <= v_now
    order by coalesce(c.lease_until, c.process_after)
    limit p_limit
    for update skip locked
  ) d;
  if v_ids is null then
    return;
  end if;
  if 1 < any (v_lost) then
    select case when l.alone is not null and (l.others is null or random() < 0.5) then array[l.alone] else l.others end into v_run
    from (
      select (array_agg(u.id order by u.n) filter (where u.lost > 1))[1] as alone, array_agg(u.id) filter (where u.lost < 2) as others
      from unnest(v_ids, v_lost) with ordinality u(id, lost, n)
      where u.id <> all (v_held || v_gone)
    ) l;
    select array_agg(u.id), array_agg(u.was), array_agg(u.had), array_agg(u.lost) into v_ids, v_was, v_had, v_lost
    from unnest(v_ids, v_was, v_had, v_lost) u(id, was, had, lost)
    where u.id = any (v_run || v_held || v_gone);
  end if;
  v_claim := deed.claim_number(); -- not the next one of the row: a failover may have forgotten that somebody has it
  update deed.channel_messages m
  set status = 'denied_erased', lease_until = null, process_after = null, finished_at = v_now, claim = v_claim
  where m.id = any (v_gone);
  return query
  with claimed as (
    update deed.channel_messages m
    set status = case when m.id = any (v_held) then 'dispatch_failed' else 'accepted' end,
      lease_until = case when m.id <> all (v_held) then v_now + p_lease end,
      process_after = null,
      held_at = case when m.id = any (v_held) then v_now end,
      finished_at = case when m.id = any (v_held) then v_now end,
      error = case
        when m.id = any (v_held) and u.lost >= 10 then left(format('it was claimed %s times%s never ended: each time the process died, or was too slow for its lease%s',
          m.attempts, case when m.attempts > u.lost then format(', and %s times', u.lost) else ' and' end, '; it had failed before: ' || m.error), 4000)
        when m.id = any (v_held) then coalesce(m.error, format('it was claimed %s times, %s of them lost, and never ended', m.attempts, u.lost))
        else m.error
      end,
      claim = v_claim, claimed_by = left(p_worker, 200), claimed_at = v_now, attempts = m.attempts + (m.id <> all (v_held))::int, lost_claims = u.lost
    from unnest(v_ids, v_lost) u(id, lost)
    where m.id = u.id and m.id <> all (v_gone)
    returning m.*
  )
  select c.id, c.claim, c.tenant_id, c.source, c.platform_message_id, c.contact_id, c.kind, c.sender, c.reply_to, c.text, c.body, c.attempts,
    c.correlation_id, c.received_at, c.held_at is not null
  from claimed c
  order by c.turn;
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
  select m.tenant_id, coalesce(nullif(left(p_worker, 200), ''), session_user),
    case when m.emptied_at is not null then 'erase' when m.held_at is not null then 'hold' when w.was = 'accepted' then 'take' else 'retry' end, 'channel_message',
    case when count(*) = 1 then min(m.id::text) end, w.was, m.status, 'the lease of ' || w.had || ' ran out', count(*), case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(m.id)) end
  from unnest(v_ids, v_was, v_had) w(id, was, had)
  join deed.channel_messages m on m.id = w.id
  where w.was <> m.status or w.had is not null
  group by m.tenant_id, m.emptied_at is not null, m.held_at is not null, w.was, m.status, w.had;
  if v_held <> '{}' or v_gone <> '{}' then
    perform deed.pass_turns(array_agg(m.tenant_id), array_agg(m.source), array_agg(m.kind), array_agg(m.sender))
    from deed.channel_messages m
    where m.id = any (v_held || v_gone);
  end if;
end
$$;
