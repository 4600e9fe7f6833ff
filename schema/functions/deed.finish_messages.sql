-- deed.finish_messages: record what became of messages, in the transaction that has
-- what was done about them, or none (D8).
--
-- Only those that are still this claim's and under a live lease are recorded, and
-- returned: for the others the caller does nothing. p_statuses are executed, denied_*,
-- dispatch_failed, or accepted for one that was not begun and is given back. A failed one
-- is run again p_again seconds later, null for when the platform repeats it; but when it
-- has failed p_most times, its lost claims aside (deed.claim_messages), it is held for a person. The next message of each sender
-- has its turn. Raises 55P03 where somebody else has locked one of them or its sender, such
-- as by an erasure that is left open: the others are not to wait for that.
create or replace function deed.finish_messages(
  p_ids      uuid[],
  p_claims   bigint[],
  p_statuses text[],
  p_errors   text[],
  p_again    float8[],
  p_most     int,
  p_worker   text
) returns table (id uuid, status text, attempts int, held boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '300ms'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_ids uuid[];
begin
  -- Contacts first, as an erasure has it: whom replies are reserved for is locked anyway.
  perform from (
    select c.id from deed.contacts c
    where c.id = any (array(select m.contact_id from deed.channel_messages m where m.id = any (p_ids)))
    order by c.id
    for key share
  ) locked;
  v_ids := array(
    select m.id
    from (select u.id, u.claim from unnest(p_ids, p_claims) u(id, claim) order by u.id) u
    cross join lateral (
      select c.id, c.lease_until
      from deed.channel_messages c
      where c.id = u.id and c.claim = u.claim and c.status = 'accepted'
      for no key update
    ) m
    where m.lease_until > clock_timestamp() and m.lease_until < 'infinity'
  );
  return query
  with ended as (
    update deed.channel_messages m
    set status = w.status,
      lease_until = case when w.status = 'accepted' then v_now end,
      process_after = case when w.status = 'dispatch_failed' and m.attempts - m.lost_claims < p_most then v_now + make_interval(secs => w.again) end,
      held_at = case when w.status = 'dispatch_failed' and m.attempts - m.lost_claims >= p_most then v_now end,
      finished_at = case when w.status <> 'accepted' then v_now end,
      attempts = m.attempts - (w.status = 'accepted')::int,
      claimed_by = case when w.status <> 'accepted' then m.claimed_by end, claimed_at = case when w.status <> 'accepted' then m.claimed_at end,
      error = case when m.emptied_at is null then left(w.error, 4000) when w.error is not null then 'erased' end
    from (
      -- Of what was erased while it was run nothing is written, and it is run no more.
      select u.id, case when u.status in ('executed', 'dispatch_failed', 'accepted') and o.emptied_at is not null then 'denied_erased' else u.status end as status, u.error, u.again
      from unnest(p_ids, p_statuses, p_errors, p_again) u(id, status, error, again)
      join deed.channel_messages o on o.id = u.id
    ) w
    where m.id = w.id and m.id = any (v_ids)
    returning m.id, m.tenant_id, m.status, m.attempts, m.held_at is not null as held
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, affected, details)
    select e.tenant_id, coalesce(nullif(left(p_worker, 200), ''), session_user), case when e.held then 'hold' else 'run' end, 'channel_message',
      case when count(*) = 1 then min(e.id::text) end, 'accepted', e.status, count(*), case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(e.id)) end
    from ended e
    where e.status <> 'accepted'
    group by e.tenant_id, e.status, e.held
  )
  select e.id, e.status, e.attempts, e.held from ended e;
  perform deed.pass_turns(array_agg(m.tenant_id), array_agg(m.source), array_agg(m.kind), array_agg(m.sender))
  from deed.channel_messages m
  where m.id = any (v_ids);
end
$$;
