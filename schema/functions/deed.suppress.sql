-- deed.suppress: write to these addresses no more, over this channel.
--
-- Holds from the next attempt on, also for what is reserved already: that is
-- skipped. Addresses are compared without regard to case. Returns how many were
-- new. One audit row for the call. Raises DDARG, DDTEN.
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
begin
  if p_channel is null or p_channel not in ('email', 'sms', 'voice', 'social', 'chat', 'webhook') then
    raise exception 'suppress: channel must be email, sms, voice, social, chat or webhook' using errcode = 'DDARG';
  end if;
  if coalesce(length(p_reason), 0) not between 1 and 200 then
    raise exception 'suppress: a reason of 1 to 200 characters is needed' using errcode = 'DDARG';
  end if;
  if exists (select from unnest(p_addresses) a where coalesce(length(btrim(a, e' \t\r\n')), 0) not between 1 and 2000) then
    raise exception 'suppress: an address is empty or too long' using errcode = 'DDARG';
  end if;
  with added as (
    insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at)
    select distinct v_tenant, p_channel, lower(btrim(a, e' \t\r\n')), p_reason, v_actor, clock_timestamp()
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
