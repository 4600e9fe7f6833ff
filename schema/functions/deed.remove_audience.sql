-- deed.remove_audience: remove an audience that was never finished, up to p_limit members a call, and the
-- audience with the last of them. From the first call on it is loaded no further, and the name is
-- free when it is gone. Whoever is killed in between asks again. Contacts that were made for it stay. Returns how many
-- members were removed, and whether it is gone. Raises DDARG, DDTEN, DDNFD, and DDCON for an audience that is ready:
-- runs are proved by it.
create or replace function deed.remove_audience(
  p_audience  uuid,
  p_limit     int default 10000,
  p_reason    text default null,
  p_tenant    uuid default null,
  p_actor     text default null,
  out removed bigint,
  out gone    boolean
) returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_xid      xid8 := pg_current_xact_id(); -- before it is asked whether the tenant was removed: who removes it waits for this
  v_tenant   uuid := deed.tenant_of_call('remove_audience', p_tenant);
  v_actor    text := coalesce(nullif(left(p_actor, 200), ''), session_user);
  v_audience deed.audiences;
begin
  if (p_limit between 1 and 100000) is not true then
    raise exception 'remove_audience: the limit must be from 1 to 100000' using errcode = 'DDARG';
  end if;
  select a.* into v_audience from deed.audiences a where a.id = p_audience and a.tenant_id = v_tenant for update;
  if not found then
    raise exception 'remove_audience: there is no audience %', p_audience using errcode = 'DDNFD';
  elsif v_audience.status = 'ready' then
    raise exception 'remove_audience: the audience % is ready, and runs are proved by it', p_audience using errcode = 'DDCON';
  elsif v_audience.status = 'loading' then
    update deed.audiences a set status = 'removing' where a.id = p_audience;
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected)
    values (v_tenant, v_actor, 'remove', 'audience', p_audience::text, 'loading', 'removing', left(p_reason, 2000), v_audience.members);
  end if;
  delete from deed.audience_members m
  where m.audience_id = p_audience and m.n in (select o.n from deed.audience_members o where o.audience_id = p_audience order by o.n limit p_limit);
  get diagnostics removed = row_count;
  gone := removed < p_limit;
  if gone then
    delete from deed.audiences a where a.id = p_audience;
  end if;
end
$$;
