-- deed.suppress: write to these addresses no more, over this channel.
--
-- Holds from the next attempt on, also for what is reserved already: that is
-- skipped. Addresses are stored as they are compared (deed.fold_address). Returns
-- how many were new. One audit row for the call. Raises DDARG, also for what is
-- not an address, and DDTEN.
create or replace function deed.suppress(
  p_channel   text,
  p_addresses text[],
  p_reason    text,
  p_actor     text default null,
  p_tenant    uuid default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant uuid := deed.tenant_of_call('suppress', p_tenant);
  v_actor  text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_count  bigint;
  v_bad    record;
begin
  if p_channel is null or p_channel not in ('email', 'sms', 'voice', 'social', 'chat', 'webhook') then
    raise exception 'suppress: channel must be email, sms, voice, social, chat or webhook' using errcode = 'DDARG';
  end if;
  if coalesce(length(p_reason), 0) not between 1 and 200 then
    raise exception 'suppress: a reason of 1 to 200 characters is needed' using errcode = 'DDARG';
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
    insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at)
    select distinct v_tenant, p_channel, deed.fold_address(p_channel, a), p_reason, v_actor, clock_timestamp()
    from unnest(p_addresses) a
    order by 3
    on conflict do nothing
    returning address
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected)
    select v_tenant, v_actor, 'suppress', 'suppression', case when count(*) = 1 then p_channel || ':' || min(a.address) end, p_reason, count(*)
    from added a
    having count(*) > 0
  )
  select count(*) into v_count from added;
  return v_count;
end
$$;
