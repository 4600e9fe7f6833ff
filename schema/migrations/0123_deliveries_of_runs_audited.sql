-- breaking: no
-- C6: what became of a run's deliveries, one by one. The audit log has had a row for each batch of them, with
-- their ids; from now on it has the run's, too (deed.attempt, deed.settle and their like), so that it is
-- found by that. What a job reserved stands there as one row, and in the ledger, which has each delivery with when it was made
-- and whether it was skipped at once; that never changes, but that an erasure empties the reason. Once a
-- run is sealed its deliveries go, and the row of each job is told in their stead.
--
-- The why of one of many is its own where the ledger has it, and else the kind: the audit row of several has no
-- text, since an erasure could not find it there (D12).
create or replace view deed.campaign_audit_log with (security_invoker = true) as
select a.n, a.at, a.tenant_id, a.run_id, a.actor, a.login, a.action, a.subject_type, a.subject_id, a.from_status, a.to_status, a.reason, a.affected, a.details
from deed.audit_log a
where a.run_id is not null
  and (a.subject_type <> 'delivery' or (a.subject_id is null and not coalesce(a.details ? 'ids', false)))
  and (a.subject_type <> 'delivery' or a.action <> 'reserve' or not exists (select from deed.campaign_runs r where r.id = a.run_id and r.sealed_at is null))
union all
select a.n, a.at, a.tenant_id, a.run_id, a.actor, a.login, a.action, a.subject_type, d.id, a.from_status, a.to_status,
  coalesce(a.reason, case
    when a.to_status = 'skipped' then (select c.skip_reason from deed.channel_outbox c where c.id = d.id::uuid)
    when a.to_status in ('failed', 'dead') then (select c.last_error from deed.channel_outbox c where c.id = d.id::uuid)
    when a.to_status in ('sent', 'called', 'posted') then 'accepted'
    when b.kind is not null then (
      select t.error from deed.delivery_attempts t
      where t.delivery_id = d.id::uuid and t.at <= a.at and not t.late
        and t.outcome = case b.kind when 'later' then 'not now' when 'unreachable' then 'outage' else replace(b.kind, '_', ' ') end
      order by t.at desc
      limit 1
    ) end, b.kind),
  1, b.details
from deed.audit_log a
cross join lateral (
  select coalesce(a.details -> 'ids', to_jsonb(array[a.subject_id])) as ids, a.details ->> 'kind' as kind, nullif(a.details - 'ids', '{}') as details
  offset 0 -- once for all of them
) b
cross join lateral jsonb_array_elements_text(b.ids) d(id)
where a.run_id is not null and a.subject_type = 'delivery' and (a.subject_id is not null or a.details ? 'ids')
union all
select a.n, c.created_at, c.tenant_id, c.run_id, a.actor, a.login, a.action, a.subject_type, c.id::text, null, s.status, s.reason, 1, jsonb_build_object('job', c.job_id)
from deed.audit_log a
join deed.campaign_runs r on r.id = a.run_id and r.sealed_at is null
cross join lateral (select (a.details ->> 'job')::uuid as id offset 0) j
join deed.channel_outbox c on c.run_id = a.run_id and c.job_id = j.id
cross join lateral (
  select case when o.skipped then 'skipped' else 'queued' end as status, case when o.skipped then c.skip_reason end as reason
  from (select c.status = 'skipped' and c.finished_at = c.created_at as skipped) o
) s
where a.run_id is not null and a.subject_type = 'delivery' and a.action = 'reserve' and a.subject_id is null;
