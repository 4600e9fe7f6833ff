-- deed.unsuppress: these addresses may be written to again, over this channel: what
-- was suppressed for p_purpose is no longer, and what was for another still is.
--
-- What was skipped stays skipped. So is what was suppressed for somebody who was erased
-- since, by the address, or by its mark (deed.address_mark) as lists show it. Returns how
-- many were suppressed. One audit row for the call. Raises DDARG, also for what is not
-- an address, unless it is stored from before such were refused; and DDTEN.
create or replace function deed.unsuppress(
  p_channel   text,
  p_addresses text[],
  p_reason    text,
  p_actor     text default null,
  p_tenant    uuid default null,
  p_purpose   text default ''
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
  v_tenant uuid := deed.tenant_of_call('unsuppress', p_tenant);
  v_count  bigint;
  v_bad    record;
begin
  if coalesce(length(p_reason), 0) not between 1 and 200 then
    raise exception 'unsuppress: a reason of 1 to 200 characters is needed' using errcode = 'DDARG';
  end if;
  if p_channel is null or p_channel not in ('email', 'sms', 'voice', 'social', 'chat', 'webhook') then
    raise exception 'unsuppress: channel must be email, sms, voice, social, chat or webhook' using errcode = 'DDARG';
  end if;
  if p_purpose is null or (p_purpose <> '*' and p_purpose !~ '^([A-Za-z0-9._-]{1,100})?$') then
    raise exception 'unsuppress: purpose must be 1 to 100 characters of A-Z a-z 0-9 . _ -, * for all of them, or empty for what is suppressed for everything'
      using errcode = 'DDARG';
  end if;
  select u.n, (deed.check_address(p_channel, u.a)).problem into v_bad
  from unnest(p_addresses) with ordinality u(a, n)
  where deed.fold_address(p_channel, u.a) is null
    and not exists (
      select from deed.suppressions s
      where s.tenant_id = v_tenant and s.channel = p_channel and s.address = lower(btrim(u.a, e' \t\r\n'))
    )
  order by u.n
  limit 1;
  if found then
    raise exception 'unsuppress: address % is not one of the channel %: %', v_bad.n, p_channel, v_bad.problem using errcode = 'DDARG';
  end if;
  with removed as (
    delete from deed.suppressions s
    where s.tenant_id = v_tenant and s.channel = p_channel and s.purpose = p_purpose
      and s.address = any (array(
        select k.address
        from unnest(p_addresses) a
        cross join lateral (select coalesce(deed.fold_address(p_channel, a), lower(btrim(a, e' \t\r\n'))) as folded) f
        cross join lateral (
          values (f.folded), (deed.address_mark(v_tenant, p_channel, f.folded)),
            (case when p_channel = 'chat' and f.folded ~ '^[1-9][0-9]{7,14}$' then deed.address_mark(v_tenant, p_channel, '+' || f.folded) end) -- as it was once
        ) k(address)
      ))
    returning s.address
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected, details)
    select v_tenant, coalesce(nullif(left(p_actor, 200), ''), session_user), 'unsuppress', 'suppression',
      case when count(*) = 1 then p_channel || ':' || case when min(r.address) like 'hmac:%' then min(r.address) else deed.address_mark(v_tenant, p_channel, min(r.address)) end end, p_reason, count(*),
      case when p_purpose <> '' then jsonb_build_object('purpose', p_purpose) end
    from removed r
    having count(*) > 0
  )
  select count(*) into v_count from removed;
  return v_count;
end
$$;
