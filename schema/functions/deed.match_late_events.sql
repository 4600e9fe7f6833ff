-- deed.match_late_events: try events again whose message no delivery had when they came
-- (deed.record_events), at most p_limit; and take away those that are seven days old, as
-- well as soft bounces. The older an event is, the seldomer it is tried: an eighth of its age later, at most six
-- hours. Of an account that others send by, too, most are never matched. Those of a delivery that somebody has locked, or that would write what somebody
-- has, as by an erasure that is left open, are left for the next time: all others', of all tenants, would
-- wait with them. Returns how many were looked at, and what the log says of those that were proved.
create or replace function deed.match_late_events(
  in  p_limit int,
  in  p_actor text,
  out looked  bigint,
  out told    jsonb
)
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
declare
  v_now    timestamptz := clock_timestamp();
  v_looked bigint[];
  v_ids    uuid[];
  v_of     deed.unmatched_events[];
  v_free   uuid[]; -- of the deliveries those that nobody has locked
  v_busy   uuid[];
  v_kept   bigint[] := '{}'; -- the events of the others
begin
  delete from deed.soft_bounces s
  where s.ctid = any (array(select o.ctid from deed.soft_bounces o where o.at < v_now - interval '7 days' order by o.at limit p_limit for update skip locked));
  with looked as (
    update deed.unmatched_events e
    set tried_at = v_now + least(greatest(v_now - e.received_at, interval '0') / 8, interval '6 hours')
    where e.n = any (array(
      select o.n from deed.unmatched_events o
      where o.tried_at < v_now - interval '30 seconds'
      order by o.tried_at
      limit p_limit
      for update skip locked
    ))
    returning e.*
  ),
  found as (
    select l as event, d.id
    from looked l
    left join lateral (
      select c.id
      from deed.channel_outbox c
      where c.channel in ('email', 'sms', 'voice') and c.provider_message_id = l.message_id
        and c.provider = l.provider and c.request_kind = l.kind and c.request_account = l.account and not c.sandbox
        and (l.tenants is null or c.tenant_id = any (l.tenants))
      limit 1
    ) d on true
  )
  select array_agg((f.event).n), array_agg(f.id order by (f.event).n) filter (where f.id is not null), array_agg(f.event order by (f.event).n) filter (where f.id is not null)
  into v_looked, v_ids, v_of
  from found f;
  if v_ids is not null then
    v_free := array(select c.id from deed.channel_outbox c where c.id = any (v_ids) order by c.id for no key update skip locked);
    v_kept := array(select v_of[i].n from generate_series(1, cardinality(v_ids)) i where v_ids[i] <> all (v_free));
    select array_agg(v_ids[i] order by i), array_agg(v_of[i] order by i) into v_ids, v_of
    from generate_series(1, cardinality(v_ids)) i
    where v_ids[i] = any (v_free);
  end if;
  if v_ids is not null then
    select t.told, t.busy into told, v_busy
    from deed.try_events(v_ids,
      array(select u.event from unnest(v_of) with ordinality u order by u.ordinality),
      array(select u.event_id from unnest(v_of) with ordinality u order by u.ordinality),
      array(select u.message_id from unnest(v_of) with ordinality u order by u.ordinality),
      array_fill(''::text, array[cardinality(v_ids)]),
      array(select u.at from unnest(v_of) with ordinality u order by u.ordinality),
      array_fill(''::text, array[cardinality(v_ids)]),
      array(select coalesce(u.code, '') from unnest(v_of) with ordinality u order by u.ordinality),
      p_actor, interval '50 milliseconds') t;
    v_kept := v_kept || array(select v_of[i].n from generate_series(1, cardinality(v_ids)) i where v_ids[i] = any (v_busy));
  end if;
  if v_kept <> '{}' then -- these are somebody's, and are tried again soon
    update deed.unmatched_events e set tried_at = v_now where e.n = any (v_kept);
  end if;
  delete from deed.unmatched_events e
  where e.n = any (v_looked) and e.n <> all (v_kept)
    and (e.received_at < v_now - interval '7 days' or e.n = any (array(select u.n from unnest(v_of) u)));
  looked := coalesce(cardinality(v_looked), 0);
  told := coalesce(told, '[]');
end
$$;
