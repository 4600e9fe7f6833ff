-- deed.unsuppress: these addresses may be written to again, over this channel.
--
-- What was skipped stays skipped. Returns how many were suppressed. One audit
-- row for the call. Raises DDARG, DDTEN.
create or replace function deed.unsuppress(
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
  v_tenant uuid := deed.tenant_of_call('unsuppress', p_tenant);
  v_count  bigint;
begin
  if coalesce(length(p_reason), 0) not between 1 and 200 then
    raise exception 'unsuppress: a reason of 1 to 200 characters is needed' using errcode = 'DDARG';
  end if;
  with removed as (
    delete from deed.suppressions s
    where s.tenant_id = v_tenant and s.channel = p_channel and s.address = any (array(select lower(btrim(a, e' \t\r\n')) from unnest(p_addresses) a))
    returning s.address
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason, affected)
    select v_tenant, coalesce(nullif(left(p_actor, 200), ''), session_user), 'unsuppress', 'suppression',
      case when count(*) = 1 then p_channel || ':' || min(r.address) end, p_reason, count(*)
    from removed r
    having count(*) > 0
  )
  select count(*) into v_count from removed;
  return v_count;
end
$$;
