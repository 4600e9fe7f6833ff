-- deed.finish_audience: say that an audience has all of its members, p_members; from then on
-- it never changes but for erasures. Again is harmless. Raises DDTEN, DDNFD, and DDCON where
-- it has another number of members.
create or replace function deed.finish_audience(
  p_audience uuid,
  p_members  bigint,
  p_tenant   uuid default null,
  p_actor    text default null
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant   uuid := deed.tenant_of_call('finish_audience', p_tenant);
  v_audience deed.audiences;
begin
  select a.* into v_audience from deed.audiences a where a.id = p_audience and a.tenant_id = v_tenant for update;
  if not found then
    raise exception 'finish_audience: there is no audience %', p_audience using errcode = 'DDNFD';
  elsif v_audience.status = 'removing' then
    raise exception 'finish_audience: the audience % is being removed', p_audience using errcode = 'DDCON';
  elsif v_audience.members is distinct from p_members then
    raise exception 'finish_audience: the audience has % members, and not %', v_audience.members, coalesce(p_members::text, 'null') using errcode = 'DDCON';
  elsif v_audience.status = 'ready' then
    return;
  end if;
  update deed.audiences a set status = 'ready', ready_at = clock_timestamp() where a.id = p_audience;
  insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, affected)
  values (v_tenant, coalesce(nullif(left(p_actor, 200), ''), session_user), 'finish', 'audience', p_audience::text, 'loading', 'ready', p_members);
end
$$;
