-- deed.apply_events: record events of deliveries, whose ids they are; null: nobody's, which is
-- passed over. What deed.record_events and deed.match_late_events do. Returns what the log says of
-- those that they proved (deed.prove_delivery), a list.
--
-- A hard bounce suppresses its address for everything, a complaint for all that has a
-- purpose, an unsubscription for the delivery's; the fifth soft bounce in a row within seven
-- days for everything, for thirty days. That is the recipient or who got a copy: of any other
-- address it is the recipient's, and of an e-mail with copies, as where it names none, nobody's, since
-- it may be about any of them. Of one who was erased nothing is kept but when.
--
-- What has suppressed somebody does so once: said again, after a person has lifted that, it changes nothing.
-- Who has complained or left once more is suppressed anew: at a later time of the event's own; of one that has none that
-- can be used, as where the provider's clock is ahead of ours, what the audit log does not have by its id is not a repeat.
create or replace function deed.apply_events(
  p_ids         uuid[],
  p_events      text[],
  p_event_ids   text[],
  p_message_ids text[],
  p_addresses   text[],
  p_ats         timestamptz[],
  p_reasons     text[],
  p_codes       text[],
  p_actor       text
) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_ids    uuid[];
  v_about  uuid[]; -- p_ids, without those of events about copies
  v_heard  timestamptz[]; -- of each event until when the same was said before of its delivery's only recipient; null: it was not
  v_told   jsonb := '[]';
  v_e      record;
begin
  -- Against an erasure, and their removal, which take these rows for themselves; and against
  -- events of the same ones at once, of which each may settle a doubt.
  select array_agg(q.id) into v_ids
  from (select distinct u.id from unnest(p_ids) u(id) where u.id is not null order by u.id) u
  cross join lateral (
    select c.id from deed.channel_outbox c where c.id = u.id and not deed.is_removed(c.tenant_id) for no key update
  ) q;
  -- What is said of who got a copy is nothing about the recipient.
  select array_agg(case when not exists (select from deed.channel_outbox o where o.id = u.id and o.cc is not null and case when o.erased_at is null then deed.fold_address(o.channel, u.address) else deed.address_mark(o.tenant_id, o.channel, deed.fold_address(o.channel, u.address)) end = any (o.cc)) then u.id end order by u.n)
  into v_about
  from unnest(p_ids, p_addresses) with ordinality u(id, address, n);
  select array_agg(case u.event when 'bounced' then case when f.bounce = 'hard' then 'infinity'::timestamptz end
    when 'complained' then f.complained_at when 'unsubscribed' then f.unsubscribed_at end order by u.n)
  into v_heard
  from unnest(v_about, p_events) with ordinality u(id, event, n)
  left join deed.delivery_feedback f on f.delivery_id = u.id;
  perform deed.tell_feedback(v_ids, v_about, p_events, p_ats, p_reasons, p_codes);
  insert into deed.delivery_feedback as f (delivery_id, tenant_id, run_id, delivered_at, bounced_at, complained_at, unsubscribed_at, opened_at, clicked_at, answered_at, last_delivered_at, bounce, bounce_since, reason, code)
  select c.id, c.tenant_id, c.run_id, e.delivered_at, e.bounced_at, e.complained_at, e.unsubscribed_at, e.opened_at, e.clicked_at, e.answered_at, e.last_delivered_at, e.bounce, e.bounce_since,
    case when c.erased_at is null then e.reason end, e.code
  from (
    select u.id,
      min(u.at) filter (where u.event = 'delivered') as delivered_at,
      min(u.at) filter (where u.gravity is not null) as bounced_at,
      min(u.at) filter (where u.event = 'complained') as complained_at,
      min(u.at) filter (where u.event = 'unsubscribed') as unsubscribed_at,
      min(u.at) filter (where u.event = 'opened') as opened_at,
      min(u.at) filter (where u.event = 'clicked') as clicked_at,
      min(u.at) filter (where u.event = 'answered') as answered_at,
      max(u.own) filter (where u.event = 'delivered') as last_delivered_at,
      (array['hard', 'dropped', 'soft'])[min(u.gravity)] as bounce,
      (array_agg(u.at order by u.gravity, u.at) filter (where u.gravity is not null))[1] as bounce_since,
      (array_agg(u.reason order by u.gravity, u.at, u.code, u.reason) filter (where u.gravity is not null or u.event = 'answered'))[1] as reason,
      (array_agg(u.code order by u.gravity, u.at, u.code, u.reason) filter (where u.gravity is not null or u.event = 'answered'))[1] as code
    from unnest(v_about, p_events, p_ats, p_reasons, p_codes) v(id, event, at, reason, code)
    cross join lateral (
      select v.id, v.event, array_position(array['bounced', 'dropped', 'soft_bounced'], v.event) as gravity, coalesce(v.at, v_now) as at, v.at as own,
        left(nullif(v.reason, ''), 1000) as reason, left(nullif(v.code, ''), 100) as code
    ) u
    where v.id = any (v_ids) and v.event <> 'accepted'
    group by u.id
    order by u.id
  ) e
  cross join lateral (select o.id, o.tenant_id, o.run_id, o.erased_at from deed.channel_outbox o where o.id = e.id) c
  on conflict on constraint delivery_feedback_pkey do update
  set delivered_at = least(f.delivered_at, excluded.delivered_at), bounced_at = least(f.bounced_at, excluded.bounced_at),
    complained_at = least(f.complained_at, excluded.complained_at), unsubscribed_at = least(f.unsubscribed_at, excluded.unsubscribed_at),
    opened_at = least(f.opened_at, excluded.opened_at), clicked_at = least(f.clicked_at, excluded.clicked_at), answered_at = least(f.answered_at, excluded.answered_at),
    last_delivered_at = greatest(f.last_delivered_at, excluded.last_delivered_at),
    (bounce, bounce_since, reason, code) = (
      -- As if all had come at once: the gravest bounce, as it was said first, else how the first call ended.
      select w.bounce, w.bounce_since, w.reason, w.code
      from (
        values (f.bounce, f.bounce_since, f.bounced_at, f.answered_at, f.reason, f.code),
          (excluded.bounce, excluded.bounce_since, excluded.bounced_at, excluded.answered_at, excluded.reason, excluded.code)
      ) w(bounce, bounce_since, bounced_at, answered_at, reason, code)
      where w.bounced_at is not null or w.answered_at is not null
      order by array_position(array['hard', 'dropped', 'soft'], w.bounce), w.bounced_at is null, coalesce(w.bounce_since, w.answered_at), w.code, w.reason
      limit 1
    )
  where (least(f.delivered_at, excluded.delivered_at), least(f.bounced_at, excluded.bounced_at), least(f.complained_at, excluded.complained_at), least(f.unsubscribed_at, excluded.unsubscribed_at),
      least(f.opened_at, excluded.opened_at), least(f.clicked_at, excluded.clicked_at), least(f.answered_at, excluded.answered_at))
    is distinct from (f.delivered_at, f.bounced_at, f.complained_at, f.unsubscribed_at, f.opened_at, f.clicked_at, f.answered_at)
    or excluded.last_delivered_at > coalesce(f.last_delivered_at, f.delivered_at, '-infinity')
    or coalesce(array_position(array['hard', 'dropped', 'soft'], excluded.bounce), 4) < coalesce(array_position(array['hard', 'dropped', 'soft'], f.bounce), 4)
    or excluded.bounce is not distinct from f.bounce and excluded.bounce_since < f.bounce_since
    or (excluded.bounce, excluded.bounce_since) is not distinct from (f.bounce, f.bounce_since) and (f.bounce is not null or excluded.answered_at is not distinct from f.answered_at)
      and (excluded.code, excluded.reason) is distinct from (f.code, f.reason);

  -- What it says something of, it has taken.
  for v_e in
    select c.id, (select max(u.message_id) from unnest(p_ids, p_message_ids) u(id, message_id) where u.id = c.id) as message_id
    from unnest(v_ids) i(id)
    cross join lateral (select o.id, o.status from deed.channel_outbox o where o.id = i.id and o.status not in ('sent', 'called', 'posted') and o.proved_at is null) c
    order by c.id
  loop
    v_told := v_told || coalesce((
      select jsonb_agg(jsonb_build_object('id', v_e.id, 'tenant', d.tenant_id, 'provider', d.provider, 'channel', d.channel, 'attempts', d.attempts,
        'correlation_id', coalesce(d.correlation_id, ''), 'channel_message_id', coalesce(d.channel_message_id::text, ''), 'was', d.was, 'status', d.status, 'ended', d.ended))
      from deed.prove_delivery(v_e.id, v_e.message_id, p_actor) d
      where d.was is not null
    ), '[]');
  end loop;

  if p_events && array['soft_bounced', 'delivered'] and ('soft_bounced' = any (p_events) or exists (select from deed.soft_bounces)) then
    perform deed.hold_bounces(v_ids, p_ids, p_events, p_addresses);
  end if;
  if p_events && array['bounced', 'complained', 'unsubscribed', 'soft_bounced'] then
    for v_e in
      select distinct on (c.tenant_id, c.channel, a.address, u.event, p.purpose, s.of) c.id, c.tenant_id, c.provider, c.channel, a.address, u.event, p.purpose, coalesce(u.at, v_now) as at, u.at < transaction_timestamp() as timed,
        k.event_id, k.reason,
        a.address = w.recipient as own
      from unnest(p_ids, p_events, p_event_ids, p_addresses, p_ats, v_heard) u(id, event, event_id, address, at, heard)
      cross join lateral (select o.id, o.tenant_id, o.provider, o.channel, o.purpose, o.recipient, o.cc from deed.channel_outbox o where o.id = u.id and o.erased_at is null) c
      cross join lateral (select deed.fold_address(c.channel, c.recipient) as recipient, case when u.address <> '' then deed.fold_address(c.channel, u.address) end as said) w
      -- Only who it was sent to is suppressed, whatever the service calls them.
      cross join lateral (select case when w.said = any (c.cc) then w.said when c.cc is null or w.said = w.recipient then w.recipient end as address) a
      cross join lateral (select case u.event when 'complained' then '*' when 'unsubscribed' then coalesce(nullif(c.purpose, ''), '*') else '' end as purpose) p
      -- What it is called stays in the audit log, where no address may be: WhatsApp's ids are made of the number, and a bounce's may have whom it did not reach.
      cross join lateral (
        select i.event_id, format('%s, says %s: event %s, delivery %s', u.event, left(c.provider, 40), left(i.event_id, 70), c.id) as reason
        from (
          select case when not exists (
              select from (values (a.address), (w.said)) n(address)
              where position(lower(ltrim(n.address, '+')) in replace(replace(lower(u.event_id), '%40', '@'), '=', '@')) > 0
            ) then deed.erased_message_id(u.event_id)
            else 'sha256:' || encode(sha256(convert_to(u.event_id, 'UTF8')), 'hex') end as event_id
        ) i
      ) k
      -- Soft bounces count by delivery and address, and of each its last.
      cross join lateral (select case when u.event = 'soft_bounced' then c.id end as of, case when u.event = 'soft_bounced' then coalesce(u.at, v_now) end as last) s
      where u.id = any (v_ids) and u.event in ('bounced', 'complained', 'unsubscribed', 'soft_bounced') and a.address is not null
        and case when u.event = 'soft_bounced' then true
          when c.cc is null and (u.heard is null or u.event = 'bounced' or u.at < transaction_timestamp()) then u.heard is null or u.at > u.heard
          -- What was said of whom, and by which event, is known by what it has suppressed. Who may have complained once more is not written to.
          else not exists (
            select from deed.audit_log g
            where g.subject_type = 'suppression' and g.subject_id = c.channel || ':' || deed.address_mark(c.tenant_id, c.channel, a.address) and g.tenant_id = c.tenant_id
              and g.action in ('suppress', 'extend') and starts_with(g.reason, u.event || ', says ') and g.reason like '%, delivery ' || c.id
              and case when u.event = 'bounced' then true when u.at < transaction_timestamp() then g.at >= u.at else g.reason = k.reason end
          ) end
      order by c.tenant_id, c.channel, a.address, u.event, p.purpose, s.of, s.last desc, u.at, c.id
    loop
      if v_e.event <> 'soft_bounced' then
        perform deed.suppress(v_e.channel, array[v_e.address], v_e.reason, p_actor, v_e.tenant_id, v_e.purpose);
      -- A mail that was delayed and then delivered, of which that was heard first, has not bounced.
      elsif not (v_e.own and exists (select from deed.delivery_feedback f where f.delivery_id = v_e.id and greatest(f.delivered_at, f.last_delivered_at) > v_e.at)) then
        insert into deed.soft_bounces as b (delivery_id, tenant_id, channel, address, at)
        values (v_e.id, v_e.tenant_id, v_e.channel, v_e.address, v_e.at)
        -- The last time that was said, whichever is heard first, unless that is before a copy was
        -- delivered. What says no time of its own has this request's, and a repeat of it is no later one.
        on conflict on constraint soft_bounces_pkey do update set at = excluded.at, reached = false
          where b.at < excluded.at and (v_e.timed or b.reached) or b.at = excluded.at and b.reached;
        if (select count(*) from deed.soft_bounces s where not s.reached and s.tenant_id = v_e.tenant_id and s.channel = v_e.channel and s.address = v_e.address and s.at > v_now - interval '7 days') >= 5 then
          perform deed.suppress(v_e.channel, array[v_e.address],
            format('five soft bounces in a row, says %s: event %s, delivery %s', left(v_e.provider, 40), left(v_e.event_id, 60), v_e.id), p_actor, v_e.tenant_id, '', v_now + interval '30 days');
          delete from deed.soft_bounces s where s.tenant_id = v_e.tenant_id and s.channel = v_e.channel and s.address = v_e.address;
        end if;
      end if;
    end loop;
  end if;
  -- Who was reached has no bounces in a row any more. Of a copy that is kept, for a bounce of before.
  if 'delivered' = any (p_events) then
    insert into deed.soft_bounces as b (delivery_id, tenant_id, channel, address, at, reached)
    select distinct on (c.id, a.address) c.id, c.tenant_id, c.channel, a.address, coalesce(u.at, v_now), true
    from unnest(p_ids, v_about, p_events, p_addresses, p_ats) u(id, about, event, address, at)
    cross join lateral (select o.id, o.tenant_id, o.channel from deed.channel_outbox o where o.id = u.id and u.about is null and o.erased_at is null) c
    cross join lateral (select deed.fold_address(c.channel, u.address) as address) a
    where u.event = 'delivered' and u.id = any (v_ids)
    order by c.id, a.address, coalesce(u.at, v_now) desc
    on conflict on constraint soft_bounces_pkey do update set at = excluded.at, reached = true
      where b.at < excluded.at and (excluded.at < transaction_timestamp() or not b.reached);
  end if;
  if 'delivered' = any (p_events) and exists (select from deed.soft_bounces) then
    delete from deed.soft_bounces s
    using (
      select c.tenant_id, c.channel, a.address, max(coalesce(u.at, v_now)) as at
      from unnest(p_ids, v_about, p_events, p_addresses, p_ats) u(id, about, event, address, at)
      cross join lateral (select o.tenant_id, o.channel, o.recipient from deed.channel_outbox o where o.id = u.id and o.erased_at is null) c
      cross join lateral (select deed.fold_address(c.channel, case when u.about is null then u.address else c.recipient end) as address) a
      where u.event = 'delivered' and u.id = any (v_ids)
      group by c.tenant_id, c.channel, a.address
    ) d
    where s.tenant_id = d.tenant_id and s.channel = d.channel and s.address = d.address and s.at < d.at and not s.reached;
  end if;
  return v_told;
end
$$;
