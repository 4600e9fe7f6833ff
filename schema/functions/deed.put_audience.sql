-- deed.put_audience: find the tenant's audience of a name, or make it, in the caller's
-- transaction: who loads one and was interrupted goes on behind members.
--
-- Its members are of one channel. Raises DDARG, DDTEN, DDNFD for an unknown tenant, DDCON
-- where there is one of the name for another channel, or that is being removed.
create or replace function deed.put_audience(
  p_name          text,
  p_channel       text,
  p_workspace     uuid default null,
  p_tenant        uuid default null,
  p_actor         text default null,
  out audience_id uuid,
  out status      text,
  out members     bigint
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_tenant  uuid := deed.tenant_of_call('put_audience', p_tenant);
  v_space   uuid := coalesce(p_workspace, '00000000-0000-0000-0000-000000000000');
  v_channel text;
begin
  if (length(p_name) between 1 and 200) is not true then
    raise exception 'put_audience: the name must have 1 to 200 characters' using errcode = 'DDARG';
  elsif (p_channel in ('email', 'sms', 'voice', 'social', 'chat')) is not true then
    raise exception 'put_audience: channel % is none of email, sms, voice, social, chat', coalesce(quote_literal(left(p_channel, 60)), 'null') using errcode = 'DDARG';
  end if;
  insert into deed.audiences (id, tenant_id, workspace_id, name, channel, created_at)
  values (deed.new_id(), v_tenant, v_space, p_name, p_channel, clock_timestamp())
  on conflict on constraint audiences_name_key do nothing
  returning id into audience_id;
  if found then
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id)
    values (v_tenant, coalesce(nullif(left(p_actor, 200), ''), session_user), 'put', 'audience', audience_id::text);
  end if;
  select a.id, a.status, a.members, a.channel into audience_id, status, members, v_channel
  from deed.audiences a
  where a.tenant_id = v_tenant and a.workspace_id = v_space and a.name = p_name;
  if not found then
    raise exception 'put_audience: an audience of the name was made since this transaction began' using errcode = '40001';
  elsif status = 'removing' then
    raise exception 'put_audience: the audience % is being removed', quote_literal(p_name) using errcode = 'DDCON', hint = 'deed campaign audiences remove ends it.';
  elsif v_channel <> p_channel then
    raise exception 'put_audience: the audience % is of the channel %', quote_literal(p_name), v_channel using errcode = 'DDCON';
  end if;
end
$$;
