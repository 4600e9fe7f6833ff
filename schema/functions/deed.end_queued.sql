-- deed.end_queued: end deliveries that wait, as skipped or dead, each for its
-- reason, which says so where an earlier call may have been accepted. The caller
-- has locked them and looked that they are queued and in nobody's hand. The audit row
-- of several says the kind of reason alone: what comes after it may name somebody, and
-- could not be found again (D12). Returns what the log says of them.
create or replace function deed.end_queued(
  p_ids     uuid[],
  p_status  text,
  p_reasons text[],
  p_action  text,
  p_worker  text
) returns table (id uuid, tenant_id uuid, provider text, channel text, attempts int, correlation_id text, channel_message_id uuid, reason text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  return query
  with ended as (
    update deed.channel_outbox c
    set status = p_status, skipped = p_status = 'skipped', skip_reason = case p_status when 'skipped' then u.reason end,
      last_error = case p_status when 'dead' then left(u.reason, 4000) else c.last_error end,
      finished_at = v_now, updated_at = v_now, claim = null, claimed_at = null, claimed_by = null, lease_until = null
    from (
      select w.id, w.reason || case when o.unsettled_since is not null then '; an earlier call may have been accepted' else '' end as reason
      from unnest(p_ids, p_reasons) w(id, reason)
      join deed.channel_outbox o on o.id = w.id
    ) u
    where c.id = u.id
    returning c.id, c.tenant_id, c.run_id, c.provider, c.channel, c.attempts, c.correlation_id, c.channel_message_id, u.reason
  ),
  audited as (
    insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    select e.tenant_id, e.run_id, p_worker, p_action, 'delivery', case when count(*) = 1 then min(e.id::text) end, 'queued', p_status,
      case when count(*) = 1 then left(min(e.reason), 2000) else split_part(min(e.reason), ':', 1) end, count(*),
      case when count(*) > 1 then jsonb_build_object('ids', jsonb_agg(e.id)) end
    from ended e
    group by e.tenant_id, e.run_id
  )
  select e.id, e.tenant_id, e.provider, e.channel, e.attempts, e.correlation_id, e.channel_message_id, e.reason from ended e;
end
$$;
