-- deed.discard: give up a message that is dead or waits, for a reason that is kept.
--
-- Its row goes, a receipt says that it was discarded and by whom, and the audit
-- log says why. The messages of its key that waited for it go on. p_subscription null: for all subscriptions
-- that have not finished it and do not have it in hand. Returns for how many.
-- Raises DDNFD if there is no such message, DDCON if it is claimed, DDARG without
-- a reason.
create or replace function deed.discard(
  p_id           bigint,
  p_reason       text,
  p_subscription text default null,
  p_by           text default null
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count  int;
  v_subs   int[];
  v_hashes bigint[];
begin
  if length(p_by) not between 1 and 200 or length(p_reason) > 2000 then
    raise exception 'discard: who asks is a name of 1 to 200 characters, a reason has up to 2000' using errcode = 'DDARG';
  end if;
  if coalesce(btrim(p_reason), '') = '' then
    raise exception 'discard: a reason is needed: a message is never discarded silently' using errcode = 'DDARG';
  end if;
  with gone as (
    delete from deed.pending p
    using deed.subscriptions s
    where p.id = p_id and (p.lease_until is null or p.lease_until <= clock_timestamp()) and s.id = p.subscription
      and (p_subscription is null or s.name = p_subscription)
    returning p.subscription, s.name, s.topic, p.slot, p.attempts, p.tenant_id, p.last_error, p.dead_at, p.key_hash
  ),
  receipt as (
    insert into deed.receipts (
      subscription, claim, worker, finished_at, min_id, max_id, ids, attempts, finished, failed, lost, outcome
    )
    select g.subscription, 0, coalesce(p_by, session_user), clock_timestamp(), p_id, p_id, array[p_id], array[g.attempts], 1, 0, 0, 'discarded'
    from gone g
  ),
  told as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, details)
    select g.tenant_id, coalesce(p_by, session_user), 'discard', 'message', p_id::text, case when g.dead_at is null then 'pending' else 'dead' end, 'discarded', p_reason,
      jsonb_build_object('topic', coalesce(l.topic, nullif(g.topic, '')), 'subscription', g.name, 'attempts', g.attempts, 'last_error', g.last_error, 'dead_at', g.dead_at)
    from gone g
    left join ( -- its content may be gone
      select slot, id, topic from deed.log
      union all
      select slot, id, topic from deed.kept
    ) l on l.slot = g.slot and l.id = p_id
  )
  select count(*), array_agg(g.subscription) filter (where g.key_hash is not null), array_agg(g.key_hash) filter (where g.key_hash is not null)
  into v_count, v_subs, v_hashes
  from gone g;
  if v_count > 0 then
    -- What stands behind it in an ordered stream goes on.
    perform deed.release_keys(k.subscription, array[k.hash]) from unnest(v_subs, v_hashes) k(subscription, hash);
    return v_count;
  end if;
  if exists (
    select from deed.pending p join deed.subscriptions s on s.id = p.subscription where p.id = p_id and (p_subscription is null or s.name = p_subscription)
  ) then
    raise exception 'discard: message % is in some worker''s hand%', p_id,
      coalesce(' for the subscription ' || quote_literal(p_subscription), '')
      using errcode = 'DDCON', hint = 'Wait until its call has ended or its lease has run out.';
  end if;
  raise exception 'discard: no message % waits or is dead%', coalesce(p_id::text, 'null'), coalesce(' for the subscription ' || quote_literal(p_subscription), '')
    using errcode = 'DDNFD';
end
$$;
