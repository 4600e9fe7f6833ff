-- deed.verify_messages: the part of deed.verify that is about inbound messages: the
-- rows against what the audit log says became of them, as deed.verify_deliveries does
-- with deliveries, but for tenants that were removed; and that each sender's next one can be run.
create or replace function deed.verify_messages() returns table (
  invariant text, tenant_id uuid, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with flows as (
    select a.tenant_id, f.status, f.messages
    from deed.audit_log a
    cross join lateral (
      select 'accepted' as status, a.affected - coalesce((a.details ->> 'denied')::bigint, 0) as messages where a.action = 'receive'
      union all
      select 'ended', coalesce((a.details ->> 'denied')::bigint, 0) where a.action = 'receive'
      union all
      select a.from_status, -a.affected where a.action <> 'receive'
      union all
      select a.to_status, a.affected where a.action not in ('receive', 'purge')
    ) f
    where a.subject_type = 'channel_message' and a.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r))
  ),
  told as (
    select f.tenant_id, case when f.status in ('accepted', 'dispatch_failed') then f.status else 'ended' end as name, sum(f.messages) as messages
    from flows f
    group by 1, 2
  ),
  there as (
    select m.tenant_id, case when m.status in ('accepted', 'dispatch_failed') then m.status else 'ended' end as name, count(*) as messages
    from deed.channel_messages m
    group by 1, 2
  )
  select 'channel messages are missing', tenant_id, format('%s are %s, and by the audit log %s', coalesce(h.messages, 0), name, coalesce(t.messages, 0))
  from told t
  full join there h using (tenant_id, name)
  where coalesce(t.messages, 0) > coalesce(h.messages, 0)
  union all
  select 'channel message without a turn', m.tenant_id, format('%s waits, and nothing of its sender is before it', m.id)
  from deed.channel_messages m
  where m.lease_until = 'infinity' and not exists (
    select from deed.channel_messages o
    where o.tenant_id = m.tenant_id and o.source = m.source and o.kind = m.kind and o.sender = m.sender and coalesce(o.lease_until, o.process_after) < 'infinity'
  )
  union all
  select 'channel message without a due time', m.tenant_id, format('%s is %s, with a lease until %s', m.id, m.status, coalesce(m.lease_until, m.process_after))
  from deed.channel_messages m
  where coalesce(m.lease_until, m.process_after) < 'infinity' and coalesce(m.lease_until, m.process_after) > clock_timestamp() + interval '25 hours'
    or coalesce(m.lease_until, m.process_after) = '-infinity'
$$;
