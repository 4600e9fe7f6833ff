-- deed.drop_contents: take away those of these files, which the caller has locked, that no
-- delivery needs which is unfinished or may be put back. One audit row for each tenant.
-- Returns how many went.
create or replace function deed.drop_contents(
  p_places tid[],
  p_actor  text,
  p_reason text
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_count int;
begin
  with gone as (
    delete from deed.contents c
    where c.ctid = any (p_places)
      and not exists (
        select from deed.channel_outbox o
        where o.contents @> array[c.sha256] and o.status in ('queued', 'sending', 'failed', 'dead') and o.contents is not null and o.tenant_id = c.tenant_id
      )
    returning c.tenant_id, c.sha256
  ),
  audited as (
    insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, affected, reason)
    select g.tenant_id, coalesce(nullif(left(p_actor, 200), ''), session_user), 'purge', 'content', case when count(*) = 1 then min(encode(g.sha256, 'hex')) end, count(*), p_reason
    from gone g
    group by g.tenant_id
  )
  select count(*) into v_count from gone;
  return v_count;
end
$$;
