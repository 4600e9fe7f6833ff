-- deed.verify_deliveries: the part of deed.verify that is about deliveries: the
-- ledger's rows against what the audit log says became of them.
--
-- Every change of a status leaves an audit row with how many it concerned, in
-- the same transaction; so for each tenant and status, what came in less what
-- went out is there, or more (rows that nobody audited). What ended well is added up together, as
-- early removals do not say what it was. In one snapshot with the statement that calls it; its cost grows
-- with the audit log and the ledger. Of tenants that were removed nothing is told.
create or replace function deed.verify_deliveries() returns table (
  invariant text, tenant_id uuid, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with removed as materialized (
    select r.tenant_id from deed.tenant_removals r
  ),
  flows as (
    select a.tenant_id, f.status, f.deliveries
    from deed.audit_log a
    cross join lateral (
      select 'queued' as status, a.affected - coalesce((a.details ->> 'skipped')::bigint, 0) as deliveries where a.action = 'reserve'
      union all
      select 'skipped', coalesce((a.details ->> 'skipped')::bigint, 0) where a.action = 'reserve'
      union all
      select coalesce(a.from_status, 'purged'), -a.affected where a.action = 'purge'
      union all
      select a.from_status, -a.affected where a.action not in ('reserve', 'purge') and a.from_status is not null and a.to_status is not null
      union all
      select a.to_status, a.affected where a.action not in ('reserve', 'purge') and a.from_status is not null and a.to_status is not null
    ) f
    where a.subject_type = 'delivery' and a.tenant_id <> all (array(select r.tenant_id from removed r))
  ),
  told as (
    select f.tenant_id, g.name, sum(f.deliveries) as deliveries
    from flows f
    cross join lateral (select case when f.status in ('queued', 'sending', 'failed', 'dead') then f.status else 'ended well' end) g(name)
    group by f.tenant_id, g.name
  ),
  there as (
    select c.tenant_id, g.name, count(*) as deliveries
    from deed.channel_outbox c
    cross join lateral (select case when c.status in ('queued', 'sending', 'failed', 'dead') then c.status else 'ended well' end) g(name)
    group by c.tenant_id, g.name
  ),
  listed as (
    select a.tenant_id, sum(case a.action when 'suppress' then a.affected else -a.affected end) as addresses
    from deed.audit_log a
    where a.subject_type = 'suppression' and a.action in ('suppress', 'unsuppress', 'expire', 'fold')
      and a.tenant_id <> all (array(select r.tenant_id from removed r))
    group by a.tenant_id
  )
  select 'deliveries are missing', tenant_id,
    format('%s are %s, and by the audit log %s', coalesce(h.deliveries, 0), name, coalesce(t.deliveries, 0))
  from told t
  full join there h using (tenant_id, name)
  where coalesce(t.deliveries, 0) > coalesce(h.deliveries, 0)
  union all
  select 'suppressions are missing', tenant_id,
    format('%s addresses are suppressed, and by the audit log %s', coalesce(s.addresses, 0), coalesce(l.addresses, 0))
  from listed l
  full join (select s.tenant_id, count(*) as addresses from deed.suppressions s group by s.tenant_id) s using (tenant_id)
  where coalesce(l.addresses, 0) > coalesce(s.addresses, 0)
  union all
  select 'delivery without a due time, a lease or a doubt', c.tenant_id, format('%s is %s, due %s, with a lease until %s', c.id, c.status, c.ord, c.lease_until)
  from deed.channel_outbox c
  where c.status in ('queued', 'sending')
    and (not isfinite(c.ord) or c.lease_until > clock_timestamp() + interval '25 hours'
      or (c.status = 'sending' and c.lease_until is null and c.doubt_since is null))
  union all
  select 'file of a delivery is missing', c.tenant_id, format('%s is %s and needs the content %s', c.id, c.status, encode(d.sha256, 'hex'))
  from deed.channel_outbox c
  cross join lateral unnest(c.contents) d(sha256)
  where c.contents is not null and c.status in ('queued', 'sending', 'failed', 'dead')
    and not exists (select from deed.contents f where f.tenant_id = c.tenant_id and f.sha256 = d.sha256)
$$;
