-- deed.register_provider: what a dispatcher that starts says of a provider.
--
-- The last one to start wins. p_lanes is what its lanes are (deed.lane_of);
-- deed.relane_deliveries moves what is queued when that changes. p_limited and p_rates
-- are limits, beside which those of campaigns' runs stay: '' is the provider's own, '*' that of each lane which no other
-- names, '-*' of each such lane that begins with -; others name a lane, or of lanes that
-- are recipients' the recipient. A limit that is not named is
-- removed. Returns whether
-- anything changed. Raises DDARG, also for a limit of what is no lane, or two of one; and DDCON when the name is to stand for
-- another kind while deliveries that the first one was called for are open:
-- their requests are in its words, and its key protects them.
--
-- p_reports are what the service says later of what it took, such as complained; null: not known.
-- p_verified are the domains that its account may send e-mails from; null, or none: not known.
-- p_channels are those that it carries, null: not known; p_tenants those whose deliveries alone it
-- makes, null, or none: everybody's.
--
-- p_account names the account at the service, without a secret. From now on
-- deed.attempt refuses dispatchers that serve the name through another one, or
-- with p_sandbox (everything goes there) otherwise; deliveries that were called
-- through another account wait for it; pauses are the account's, and end with it, and
-- what is answered to its calls makes none (deed.pause). Such a change waits for attempts, and
-- for pauses, that have looked before and are not committed, for a second at a time (55P03: try again):
-- from its commit on no call begins that has not seen it.
create or replace function deed.register_provider(
  p_name            text,
  p_kind            text,
  p_lanes           text,
  p_key_window      interval,
  p_can_look_up     boolean,
  p_limited         text[],
  p_rates           float8[],
  p_bursts          float8[],
  p_actor           text,
  p_account         text default '',
  p_sandbox         boolean default false,
  p_reports         text[] default null,
  p_verified        text[] default null,
  p_channels        text[] default null,
  p_tenants         uuid[] default null
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_changed boolean;
  v_timeout text := current_setting('lock_timeout');
  v_places  tid[];
  v_domains text[]; -- of p_verified, in order; null: it names none
  v_served  text[] := nullif(array(select distinct u.channel collate "C" from unnest(p_channels) u(channel) order by 1), '{}');
  v_tenants uuid[] := nullif(array(select distinct u.id from unnest(p_tenants) u(id) order by 1), '{}');
  v_limits  text[]; -- the lanes of p_limited; null: it names none
  v_at      int;
  v_problem text;
begin
  if exists (select from unnest(p_rates, p_bursts) u(rate, burst) where not coalesce(u.rate between 1e-6 and 1e6 and u.burst between 1 and 1e6, false)) then
    raise exception 'register_provider: a rate must be from 0.000001 to 1000000 and a burst from 1 to 1000000' using errcode = 'DDARG';
  end if;
  if p_lanes is null or p_lanes not in ('domain', 'host', 'country', 'recipient', 'none') then
    raise exception 'register_provider: lanes are domain, host, country, recipient or none, got %', p_lanes using errcode = 'DDARG';
  end if;
  v_limits := array(
    select case
        when u.lane in ('', '*', '-*') then u.lane
        when p_lanes = 'country' then substring(u.lane from e'^\\+[0-9]{1,3}$')
        when p_lanes = 'recipient' then deed.lane_of(p_lanes, 'chat', deed.fold_address('chat', u.lane))
        else coalesce(deed.domain_ascii(deed.fold_case(u.lane)), lower(u.lane))
      end
    from unnest(p_limited) with ordinality u(lane, n)
    order by u.n
  );
  v_at := array_position(v_limits, null);
  if v_at is not null then
    raise exception 'register_provider: the limit of % is of no lane: lanes are %', quote_literal(p_limited[v_at]),
      case p_lanes when 'country' then 'countries, such as +44' else 'recipients, as deliveries name them' end using errcode = 'DDARG';
  end if;
  select min(u.n) into v_at from unnest(v_limits) with ordinality u(lane, n) group by u.lane having count(*) > 1 limit 1;
  if found then
    raise exception 'register_provider: there are two limits of the lane of %', quote_literal(p_limited[v_at]) using errcode = 'DDARG';
  end if;
  select u.domain into v_problem from unnest(p_verified) u(domain) where deed.domain_ascii(deed.fold_case(u.domain)) is null limit 1;
  if found or cardinality(p_verified) > 1000 then
    raise exception 'register_provider: %', case when found then format('the verified domain %L is none', left(v_problem, 300)) else 'there are over 1000 verified domains' end using errcode = 'DDARG';
  end if;
  v_domains := nullif(array(select distinct deed.domain_ascii(deed.fold_case(u.domain)) collate "C" from unnest(p_verified) u(domain) order by 1), '{}');
  -- One after the other: they would lock the same buckets.
  lock table deed.provider_lock in share update exclusive mode;
  if exists (select from deed.providers p where p.name = p_name and (p.kind, p.account, p.sandbox) is distinct from (p_kind, p_account, p_sandbox)) then
    perform set_config('lock_timeout', '1s', true);
    lock table deed.provider_lock in exclusive mode;
    perform set_config('lock_timeout', v_timeout, true);
  end if;
  if exists (select from deed.providers p where p.name = p_name and p.kind <> p_kind)
    and exists (
      select from deed.channel_outbox c
      where c.provider = p_name and c.status in ('queued', 'sending') and c.first_called_at is not null
        and coalesce(c.request_kind, '') <> p_kind
    )
  then
    raise exception 'register_provider: % stands for another kind of provider than %, which deliveries that are not finished were sent through', p_name, p_kind
      using errcode = 'DDCON', hint = 'Give the new one a name of its own, or let those end first: deed deliveries list --provider ' || p_name;
  end if;
  -- What was down is another's. Who holds a pause may wait for the lock above: a claim, whose
  -- probe is let go, of a pause that is over, or a settlement, which ends it.
  v_places := array(
    select l.ctid from deed.pauses l
    where l.provider = p_name
      and exists (select from deed.providers o where o.name = p_name and (o.kind, o.account) is distinct from (p_kind, p_account))
    for update skip locked
  );
  -- In a statement of its own, which sees those that were prolonged meanwhile.
  delete from deed.pauses p where p.ctid = any (v_places);
  insert into deed.providers as p (name, kind, account, sandbox, lanes, relane, key_window, can_look_up, reports, verified_domains, channels, tenants, registered_at)
  values (p_name, p_kind, p_account, p_sandbox, p_lanes, false, p_key_window, p_can_look_up, p_reports, v_domains, v_served, v_tenants, v_now)
  on conflict (name) do update
    set kind = excluded.kind, account = excluded.account, sandbox = excluded.sandbox,
      lanes = excluded.lanes, relane = p.relane or p.lanes <> excluded.lanes, key_window = excluded.key_window,
      can_look_up = excluded.can_look_up, reports = excluded.reports, verified_domains = excluded.verified_domains, channels = excluded.channels, tenants = excluded.tenants, registered_at = v_now,
      idle_worker = null, idle_kind = null, idle_account = null, idle_sandbox = null, idle_until = null
    where (p.kind, p.account, p.sandbox, p.lanes, p.key_window, p.can_look_up, p.reports, p.verified_domains, p.channels, p.tenants)
      is distinct from (excluded.kind, excluded.account, excluded.sandbox, excluded.lanes, excluded.key_window, excluded.can_look_up, excluded.reports, excluded.verified_domains, excluded.channels, excluded.tenants);
  v_changed := found;

  -- Claims lock them in this order, and wait for no other.
  perform from deed.rate_limits r where r.provider = p_name and r.lane = '' for update;
  perform from deed.rate_limits r where r.provider = p_name and r.lane in ('*', '-*') order by r.lane for update;

  with wanted as (
    select u.lane, u.rate, u.burst from unnest(v_limits, p_rates, p_bursts) u(lane, rate, burst)
  ),
  gone as (
    delete from deed.rate_limits r
    where r.provider = p_name and r.run_id is null and not exists (select from wanted w where w.lane = r.lane)
    returning 1
  ),
  put as (
    insert into deed.rate_limits as r (provider, lane, rate, burst, tokens, at)
    select p_name, w.lane, w.rate, w.burst, w.burst, v_now from wanted w
    on conflict (provider, lane) do update
      set rate = excluded.rate, burst = excluded.burst, tokens = least(r.tokens, excluded.burst)
      where (r.rate, r.burst) is distinct from (excluded.rate, excluded.burst)
    returning 1
  )
  select v_changed or exists (select from gone) or exists (select from put) into v_changed;
  if not v_changed then
    return false;
  end if;

  insert into deed.audit_log (actor, action, subject_type, subject_id, details)
  values (coalesce(nullif(left(p_actor, 200), ''), session_user), 'register', 'provider', p_name,
    jsonb_build_object('kind', p_kind, 'account', p_account, 'sandbox', p_sandbox, 'lanes', p_lanes, 'verified_domains', v_domains, 'channels', v_served, 'tenants', v_tenants, 'limits', (select jsonb_object_agg(w.lane, w.rate) from deed.rate_limits w where w.provider = p_name)));
  return true;
end
$$;
