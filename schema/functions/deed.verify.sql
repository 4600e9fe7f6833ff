-- deed.verify: one row per violated invariant; no row, all is well.
--
-- One statement, hence one snapshot: it may run beside publishers and workers.
-- Its cost grows with the log. For the roles that cross tenants. Each part is a function of
-- its own, which is planned when it is called, and called where a row is that it could tell
-- something about: in a database without runs nobody waits for the plans of what is said of runs.
create or replace function deed.verify() returns table (
  invariant text, subscription text, message_id bigint, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
  with found as (
    select v.invariant, v.subscription, v.message_id as id, v.detail from deed.verify_streams() v
    where (select exists (select from deed.progress) or exists (select from deed.lanes) or exists (select from deed.former_lanes) or exists (select from deed.pending))
    union all
    select v.invariant, v.subscription, v.message_id, v.detail from deed.verify_references() v
    union all
    select v.invariant, v.subscription, v.message_id, v.detail from deed.verify_queues() v
    where (select exists (select from deed.log) or exists (select from deed.pending) or exists (select from deed.receipts))
    union all
    select v.invariant, null, null, format('tenant %s: %s', v.tenant_id, v.detail) from deed.verify_deliveries() v
    where (select exists (select from deed.channel_outbox) or exists (select from deed.audit_log a where a.subject_type in ('delivery', 'suppression')))
    union all
    select v.invariant, null, null, format('tenant %s: %s', v.tenant_id, v.detail) from deed.verify_messages() v
    where (select exists (select from deed.channel_messages) or exists (select from deed.audit_log a where a.subject_type = 'channel_message'))
    union all
    select v.invariant, null, null, format('tenant %s: %s', v.tenant_id, v.detail) from deed.verify_runs() v
    where (select exists (select from deed.runs) or exists (select from deed.run_log) or exists (select from deed.run_requests) or exists (select from deed.run_snapshots))
    union all
    select v.invariant, null, null, format('tenant %s: %s', v.tenant_id, v.detail) from deed.verify_plans() v
    where (select exists (select from deed.plans) or exists (select from deed.plan_steps))
    union all
    select v.invariant, null, null, format('tenant %s: %s', v.tenant_id, v.detail) from deed.verify_steps() v
    where (select exists (select from deed.runs) or exists (select from deed.run_steps))
    union all
    select v.invariant, null, null, format('tenant %s: %s', v.tenant_id, v.detail) from deed.verify_campaigns() v
    where (select exists (select from deed.audiences) or exists (select from deed.campaign_runs) or exists (select from deed.job_queue)
      or exists (select from deed.channel_outbox c where c.run_id is not null))
    union all
    select 'list of subscriptions differs', null, null, format('topic %s lists %s', quote_literal(t.topic), t.subscriptions)
    from deed.topics t
    where t.subscriptions is distinct from coalesce(
      (select array_agg(s.id order by s.id) from deed.subscriptions s where s.topic = t.topic and s.list_version is not null), '{}'
    )
    union all
    select 'no partition ahead', null, null, format('the log is at %s and the last partition ends at %s', pg_sequence_last_value('deed.log_seq'), max(p.upto_id))
    from deed.partitions p
    having coalesce(max(p.upto_id), 0) <= pg_sequence_last_value('deed.log_seq') + 68719476736
  )
  select f.invariant, coalesce(case when s.id = 0 then s.name else s.topic || '/' || s.name end, f.subscription::text), f.id, f.detail
  from found f
  left join deed.subscriptions s on s.id = f.subscription
$$;
