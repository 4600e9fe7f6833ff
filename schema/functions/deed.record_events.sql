-- deed.record_events: record what a provider says of what it took, the events of one
-- request (D13); returns how many are of a delivery, how many wait for one
-- (deed.match_late_events), how many are of none that this provider has called, of which nothing is kept,
-- and how many are of a delivery that somebody else has locked for longer than p_wait: nothing is
-- kept of those either, and the provider is to say them again (deed.try_events). proved are those that
-- were settled by that, and told is what the log says of them and of what had ended otherwise.
--
-- p_kind and p_account are how the provider is served, p_tenants whose deliveries it makes
-- (null: all). p_markers are deliveries' ids as they were put into the requests; an event
-- without one is of the e-mail, text message or call that p_message_ids names. All of them must agree, so that no
-- event of another account, nor a forged marker, changes anything. What was said before
-- changes nothing, in whatever order it comes. Raises DDARG.
create or replace function deed.record_events(
  p_provider    text,
  p_kind        text,
  p_account     text,
  p_tenants     uuid[],
  p_events      text[],
  p_event_ids   text[],
  p_markers     text[],
  p_message_ids text[],
  p_addresses   text[],
  p_ats         timestamptz[],
  p_reasons     text[],
  p_codes       text[],
  p_actor       text,
  p_wait        interval default interval '1 second',
  out matched   bigint,
  out waiting   bigint,
  out strange   bigint,
  out proved    uuid[],
  out busy      bigint,
  out told      jsonb
) returns record
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
  v_count int := coalesce(cardinality(p_events), 0);
  v_now   timestamptz := clock_timestamp();
  v_ids   uuid[];
  v_ats   timestamptz[];
  v_busy  uuid[] := '{}';
begin
  if not (v_count = all (array[cardinality(p_event_ids), cardinality(p_markers), cardinality(p_message_ids), cardinality(p_addresses), cardinality(p_ats), cardinality(p_reasons), cardinality(p_codes)])) is not false then
    raise exception 'record_events: the arrays do not have one entry an event each (% events)', v_count using errcode = 'DDARG';
  elsif not (p_events <@ array['accepted', 'delivered', 'bounced', 'soft_bounced', 'dropped', 'complained', 'unsubscribed', 'opened', 'clicked', 'answered']) then
    raise exception 'record_events: unknown event in %', p_events using errcode = 'DDARG';
  end if;
  -- No provider's clock is ahead of ours.
  select array_agg(least(u.at, v_now) order by u.n) into v_ats from unnest(p_ats) with ordinality u(at, n);
  select array_agg(d.id order by u.n) into v_ids
  from unnest(p_markers, p_message_ids) with ordinality u(marker, message_id, n)
  left join lateral (
    select c.id
    from deed.channel_outbox c
    where c.id = case when u.marker ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then u.marker::uuid end
      and c.provider = p_provider and c.request_kind = p_kind and c.request_account = p_account and not c.sandbox
      and (p_tenants is null or c.tenant_id = any (p_tenants))
    union all
    select c.id
    from deed.channel_outbox c
    where u.marker = '' and c.channel in ('email', 'sms', 'voice') and c.provider_message_id = nullif(u.message_id, '')
      and c.provider = p_provider and c.request_kind = p_kind and c.request_account = p_account and not c.sandbox
      and (p_tenants is null or c.tenant_id = any (p_tenants))
    limit 1
  ) d on true;
  select count(i), count(*) filter (where i is null) into matched, strange from unnest(v_ids) i;
  with kept as (
    insert into deed.unmatched_events (provider, kind, account, tenants, event, event_id, message_id, at, code, received_at, tried_at)
    select p_provider, p_kind, p_account, p_tenants, u.event, u.event_id, u.message_id, coalesce(u.at, v_now), left(u.code, 100), v_now, v_now
    from unnest(v_ids, p_events, p_event_ids, p_markers, p_message_ids, v_ats, p_codes) u(id, event, event_id, marker, message_id, at, code)
    where u.id is null and u.marker = '' and u.message_id <> ''
    on conflict do nothing
  )
  select count(*) into waiting
  from unnest(v_ids, p_markers, p_message_ids) u(id, marker, message_id)
  where u.id is null and u.marker = '' and u.message_id <> '';
  strange := strange - waiting;
  if matched > 0 then
    select t.told, t.busy into told, v_busy
    from deed.try_events(v_ids, p_events, p_event_ids, p_message_ids, p_addresses, v_ats, p_reasons, p_codes, p_actor, p_wait) t;
  end if;
  told := coalesce(told, '[]');
  proved := array(select (e.value ->> 'id')::uuid from jsonb_array_elements(told) e where (e.value ->> 'ended')::boolean);
  select count(*) into busy from unnest(v_ids) i where i = any (v_busy);
  matched := matched - busy;
end
$$;
