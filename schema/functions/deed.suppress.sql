-- deed.suppress: write to these addresses no more, over this channel, for p_purpose:
-- '' is everything, '*' all that has a purpose, or one (D11). From p_expires_at on it
-- holds no longer; null: for ever.
--
-- Holds from the next attempt on, also for what is reserved already: that is
-- skipped. Addresses are stored as they are compared (deed.fold_address). Returns
-- how many were new, end later than they did, or stood for a consent alone (deed.apply_consents). One audit
-- row for the call. Raises DDARG, also for what is not an address, and DDTEN.
create or replace function deed.suppress(
  p_channel    text,
  p_addresses  text[],
  p_reason     text,
  p_actor      text default null,
  p_tenant     uuid default null,
  p_purpose    text default '',
  p_expires_at timestamptz default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan -- where plans were made while there was nobody, they read tables whole
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_tenant uuid := deed.tenant_of_call('suppress', p_tenant);
  v_actor  text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_new    text[];
  v_longer text[];
  v_count  bigint;
  v_bad    record;
begin
  if p_channel is null or p_channel not in ('email', 'sms', 'voice', 'social', 'chat', 'webhook') then
    raise exception 'suppress: channel must be email, sms, voice, social, chat or webhook' using errcode = 'DDARG';
  end if;
  if coalesce(length(p_reason), 0) not between 1 and 200 then
    raise exception 'suppress: a reason of 1 to 200 characters is needed' using errcode = 'DDARG';
  end if;
  if p_purpose is null or (p_purpose <> '*' and p_purpose !~ '^([A-Za-z0-9._-]{1,100})?$') then
    raise exception 'suppress: purpose must be 1 to 100 characters of A-Z a-z 0-9 . _ -, * for all of them, or empty for everything'
      using errcode = 'DDARG';
  end if;
  if not isfinite(p_expires_at) or p_expires_at <= clock_timestamp() then
    raise exception 'suppress: it would end before it begins: expires_at is not in the future' using errcode = 'DDARG';
  elsif p_expires_at >= '10000-01-01Z' then
    raise exception 'suppress: expires_at is after the year 9999; without it it holds for ever' using errcode = 'DDARG';
  end if;
  select u.n, (deed.check_address(p_channel, u.a)).problem into v_bad
  from unnest(p_addresses) with ordinality u(a, n)
  where deed.fold_address(p_channel, u.a) is null
  order by u.n
  limit 1;
  if found then
    raise exception 'suppress: address % is not one of the channel %: %', v_bad.n, p_channel, v_bad.problem using errcode = 'DDARG';
  end if;
  with added as (
    insert into deed.suppressions as s (tenant_id, channel, address, purpose, reason, actor, created_at, expires_at)
    select v_tenant, p_channel, f.address, p_purpose, p_reason, v_actor, clock_timestamp(), p_expires_at
    from (select distinct deed.fold_address(p_channel, a) as address from unnest(p_addresses) a) f
    order by f.address
    on conflict on constraint suppressions_pkey do update
    set expires_at = excluded.expires_at, reason = excluded.reason, actor = excluded.actor, by_consent = false,
      created_at = case when s.expires_at <= clock_timestamp() then excluded.created_at else s.created_at end,
      kept_until = null, kept_reason = null, kept_actor = null
    where coalesce(s.expires_at, 'infinity') < coalesce(excluded.expires_at, 'infinity') or (s.by_consent and excluded.expires_at is null)
    returning address, xmax = 0 as is_new
  )
  select coalesce(array_agg(a.address) filter (where a.is_new), '{}'), coalesce(array_agg(a.address) filter (where not a.is_new), '{}') into v_new, v_longer from added a;
  -- In a statement of its own, which sees what was revoked meanwhile.
  with kept as (
    -- A revocation holds for ever, and may be taken back: then this is left.
    update deed.suppressions s
    set kept_until = p_expires_at, kept_reason = p_reason, kept_actor = v_actor
    from (select distinct deed.fold_address(p_channel, a) as address from unnest(p_addresses) a) f
    where s.tenant_id = v_tenant and s.channel = p_channel and s.address = f.address and s.purpose = p_purpose
      and s.by_consent and coalesce(s.kept_until, '-infinity') < p_expires_at
    returning s.address
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected, details)
    select v_tenant, v_actor, case when a.is_new then 'suppress' else 'extend' end, 'suppression',
      case when count(*) = 1 then p_channel || ':' || deed.address_mark(v_tenant, p_channel, min(a.address)) end, p_reason, count(*),
      case when p_purpose <> '' or p_expires_at is not null then jsonb_strip_nulls(jsonb_build_object('purpose', nullif(p_purpose, ''), 'until', p_expires_at)) end
    from (select n, true from unnest(v_new) n union all select l, false from unnest(v_longer) l union all select k.address, false from kept k) a(address, is_new)
    group by a.is_new
  )
  select cardinality(v_new) + cardinality(v_longer) + (select count(*) from kept) into v_count;
  return v_count;
end
$$;
