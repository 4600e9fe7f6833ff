-- deed.erase_deliveries: take away to whom these deliveries went and what was in them
-- (D12): recipient, payload, request, and texts that a provider may have put an
-- address into, in their attempts and in the audit log, too.
--
-- What is queued is skipped, and what is in doubt has failed, both as erased; what is
-- in somebody's hand expires, so that it is not called again, and is left for
-- later, or without p_in_hand neither looked at nor locked; so is what names files, where the caller's snapshot would not see who else needs them. Files that they named go, if no delivery needs them that is unfinished. What was
-- suppressed for what became of one, where it went to for somebody who was erased, goes on under its mark, whether they were known by that address or not. Of copies marks are kept (deed.address_mark). Ids, times, statuses, keys and message ids stay, and of the request its
-- SHA-256 (deed.erased_message_id). What deed.erase_contact and deed.erase_step do;
-- returns what became of each that was not erased: skipped, failed, emptied or left.
create or replace function deed.erase_deliveries(
  p_ids     uuid[],
  p_actor   text,
  p_in_hand boolean default true
) returns table (id uuid, did text)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_queued uuid[];
  v_doubt  uuid[];
  v_over   uuid[];
  v_left   uuid[];
  v_act    text := current_setting('deed.act', true);
  v_files  tid[];
  v_sees   boolean := current_setting('transaction_isolation') = 'read committed';
  v_one    record;
begin
  select coalesce(array_agg(q.id) filter (where q.what = 'queued'), '{}'), coalesce(array_agg(q.id) filter (where q.what = 'doubt'), '{}'),
    coalesce(array_agg(q.id) filter (where q.what = 'over'), '{}'), coalesce(array_agg(q.id) filter (where q.what = 'left'), '{}')
  into v_queued, v_doubt, v_over, v_left
  from (
    select l.id, case when l.finished_at is not null and (l.contents is null or v_sees) then 'over' when l.lease_until > v_now or l.contents is not null and not v_sees then 'left'
      when l.status = 'queued' then 'queued' else 'doubt' end as what
    from (
      select c.id, c.status, c.finished_at, c.lease_until, c.contents
      from deed.channel_outbox c
      where c.id = any (p_ids) and c.erased_at is null and (p_in_hand or c.lease_until is null)
      order by c.id
      for update
    ) l
  ) q;
  update deed.channel_outbox c
  set expires_at = v_now, updated_at = v_now
  where c.id = any (v_left) and c.finished_at is null and coalesce(c.expires_at > v_now, true);
  perform deed.end_queued(v_queued, 'skipped', array_fill('erased'::text, array[cardinality(v_queued)]), 'erase', p_actor);
  perform set_config('deed.act', 'person', true);
  with ended as (
    update deed.channel_outbox c
    set status = 'failed', last_error = 'erased', finished_at = v_now, updated_at = v_now,
      unsettled_since = coalesce(c.unsettled_since, c.doubt_since, v_now), doubt_since = null, doubt_reason = null, held_at = null,
      claimed_at = null, claimed_by = null, lease_until = null
    where c.id = any (v_doubt)
    returning c.id, c.tenant_id, c.run_id
  )
  insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
  select e.tenant_id, e.run_id, p_actor, 'erase', 'delivery', case when count(*) = 1 then min(e.id::text) end, 'sending', 'failed', 'erased', count(*),
    case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(e.id)) end
  from ended e
  group by e.tenant_id, e.run_id;
  perform set_config('deed.act', coalesce(v_act, ''), true);

  -- Files that nobody else needs are about them. One that somebody has locked is being named or belongs to another
  -- erasure, and one that was used just now somebody may be about to name: they are looked at again.
  with named as (
    select distinct c.tenant_id, d.sha256 from deed.channel_outbox c cross join lateral unnest(c.contents) d(sha256)
    where c.id = any (v_queued || v_doubt || v_over) and c.contents is not null
  ),
  got as materialized (
    select f.ctid as place, f.tenant_id, f.sha256
    from named n
    join deed.contents f on f.tenant_id = n.tenant_id and f.sha256 = n.sha256
    where f.used_at < v_now - interval '1 hour'
    for update of f skip locked
  ),
  kept as (
    insert into deed.erased_contents (tenant_id, sha256, actor, tried_at)
    select n.tenant_id, n.sha256, p_actor, v_now
    from named n
    where not exists (select from got g where (g.tenant_id, g.sha256) = (n.tenant_id, n.sha256))
  )
  select array_agg(g.place) into v_files from got g;
  -- Of these deliveries nothing more is suppressed: who records what became of one has its row (deed.settle, deed.apply_events), or its contact
  -- (deed.unsubscribe), and this has them now. In the order of deed.apply_events.
  for v_one in
    select s.tenant_id, array_agg(s.channel order by s.channel, s.address) as channels, array_agg(s.address order by s.channel, s.address) as addresses,
      array_agg(deed.address_mark(s.tenant_id, s.channel, s.address) order by s.channel, s.address) as marks,
      array_agg(o.id::text order by s.channel, s.address) as because
    from (
      select c.id, c.tenant_id, c.channel, deed.fold_address(c.channel, c.recipient) as address
      from deed.channel_outbox c
      cross join lateral (select k.id from deed.contacts k where k.id = c.contact_id and k.erased_at is not null offset 0) k
      where c.id = any (v_queued || v_doubt || v_over)
      offset 0
    ) o
    cross join lateral (
      select x.tenant_id, x.channel, x.address from deed.suppressions x
      where x.tenant_id = o.tenant_id and x.channel = o.channel and x.address = o.address and strpos(x.reason, 'delivery ' || o.id::text) > 0
      offset 0
    ) s
    group by s.tenant_id
    order by s.tenant_id
  loop
    perform deed.mark_suppressions(v_one.tenant_id, v_one.channels, v_one.addresses, v_one.marks, p_actor, v_one.because);
  end loop;
  update deed.channel_outbox c
  set recipient = null, recipient_id = null, lane = '', payload = '{}', payload_bytes = 2, contents = null, request = null,
    -- What is said later of who got a copy is still not about the recipient.
    cc = case when c.cc is not null then array(select deed.address_mark(c.tenant_id, 'email', y.address) from unnest(c.cc) y(address)) end, request_sha256 = coalesce(c.request_sha256, sha256(c.request)),
    erased_at = v_now, updated_at = v_now,
    last_error = case when c.last_error is not null then 'erased' end,
    skip_reason = case when c.skip_reason is not null then 'erased' end,
    provider_message_id = deed.erased_message_id(c.provider_message_id)
  where c.id = any (v_queued || v_doubt || v_over);
  if v_files <> '{}' then
    perform deed.drop_contents(v_files, p_actor, 'erased');
  end if;
  update deed.delivery_attempts a
  set error = case when a.error is not null then 'erased' end,
    provider_message_id = deed.erased_message_id(a.provider_message_id)
  where a.delivery_id = any (v_queued || v_doubt || v_over) and num_nonnulls(a.error, a.provider_message_id) > 0;
  update deed.delivery_feedback f
  set reason = 'erased'
  where f.delivery_id = any (v_queued || v_doubt || v_over) and f.reason <> 'erased';
  delete from deed.soft_bounces s where s.delivery_id = any (v_queued || v_doubt || v_over);
  update deed.audit_log a
  set reason = 'erased'
  where a.subject_type = 'delivery' and a.subject_id = any (array(select u.id::text from unnest(v_queued || v_doubt || v_over) u(id)))
    and a.reason <> 'erased';
  -- What was done to many at once stands there as one.
  update deed.audit_log a
  set reason = 'erased'
  where a.subject_type = 'delivery' and a.reason <> 'erased' and a.details ? 'ids'
    and a.details -> 'ids' ?| array(select u.id::text from unnest(v_queued || v_doubt || v_over) u(id));
  return query
  select u.id, 'skipped' from unnest(v_queued) u(id)
  union all
  select u.id, 'failed' from unnest(v_doubt) u(id)
  union all
  select u.id, 'emptied' from unnest(v_over) u(id)
  union all
  select u.id, 'left' from unnest(v_left) u(id);
end
$$;
