-- deed.look_at_contents: the files that are kept (deed.put_content) and match, those that
-- were put or named last first, below the place (p_at, p_at_tenant, p_at_sha256), at most
-- p_limit; null matches all.
--
-- needed_by are deliveries that need one, since they are unfinished or may be put back, at most
-- p_needed of them. One file is looked for by its key in each tenant.
create or replace function deed.look_at_contents(
  p_at        timestamptz,
  p_at_tenant uuid,
  p_at_sha256 bytea,
  p_limit     int,
  p_needed    int,
  p_tenant    uuid default null,
  p_sha256    bytea default null
) returns table (tenant_id uuid, sha256 bytea, size int, type text, created_at timestamptz, used_at timestamptz, needed_by uuid[])
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  select l.tenant_id, l.sha256, l.size, l.type, l.created_at, l.used_at, array(
      select o.id from deed.channel_outbox o
      where o.contents @> array[l.sha256] and o.status in ('queued', 'sending', 'failed', 'dead') and o.contents is not null and o.tenant_id = l.tenant_id
      limit p_needed
    )
  from (
    (
      select c.tenant_id, c.sha256, c.size, c.type, c.created_at, c.used_at
      from deed.contents c
      where p_tenant is null and p_sha256 is null and c.used_at <= p_at and (c.used_at, c.tenant_id, c.sha256) < (p_at, p_at_tenant, p_at_sha256)
      order by c.used_at desc, c.tenant_id desc, c.sha256 desc
      limit p_limit
    )
    union all
    (
      select c.tenant_id, c.sha256, c.size, c.type, c.created_at, c.used_at
      from deed.contents c
      where c.tenant_id = p_tenant and p_sha256 is null and c.used_at <= p_at and (c.used_at, c.tenant_id, c.sha256) < (p_at, p_at_tenant, p_at_sha256)
      order by c.used_at desc, c.sha256 desc
      limit p_limit
    )
    union all
    (
      select c.tenant_id, c.sha256, c.size, c.type, c.created_at, c.used_at
      from deed.tenants t
      join deed.contents c on c.tenant_id = t.tenant_id and c.sha256 = p_sha256
      where (p_tenant is null or t.tenant_id = p_tenant) and (c.used_at, c.tenant_id, c.sha256) < (p_at, p_at_tenant, p_at_sha256)
      order by c.used_at desc, c.tenant_id desc
      limit p_limit
    )
  ) l
  order by l.used_at desc, l.tenant_id desc, l.sha256 desc
$$;
