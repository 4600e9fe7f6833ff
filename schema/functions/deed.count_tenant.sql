-- deed.count_tenant: what deed.remove_tenant would take away, table by table; of a tenant
-- that is being removed, what is left. Rows that stay, without what people and providers
-- wrote in them, are told so. Its cost grows with the log, the audit log and what waits.
-- Raises as deed.check_tenant_removal.
create or replace function deed.count_tenant(
  p_tenant uuid
) returns table (what text, amount bigint, stays boolean)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  perform deed.check_tenant_removal('count_tenant', p_tenant);
  return query
  select c.what, c.amount, c.what = 'audit_log'
  from (
    select 'log' as what, count(*) as amount, 1 as n from deed.log r where r.tenant_id = p_tenant
    union all
    select 'kept', count(*), 2 from deed.kept r where r.tenant_id = p_tenant
    union all
    select 'pending', count(*), 3 from deed.pending r where r.tenant_id = p_tenant
    union all
    select 'door_claims', count(*), 4 from deed.door_claims r where r.tenant_id = p_tenant
    union all
    select 'publish_keys', count(*), 5 from deed.publish_keys r where r.tenant_id = p_tenant
    union all
    select 'channel_outbox', count(*), 6 from deed.channel_outbox r where r.tenant_id = p_tenant
    union all
    select 'delivery_attempts', count(*), 7 from deed.delivery_attempts r where r.tenant_id = p_tenant
    union all
    select 'delivery_feedback', count(*), 8 from deed.delivery_feedback r where r.tenant_id = p_tenant
    union all
    select 'soft_bounces', count(*), 9 from deed.soft_bounces r where r.tenant_id = p_tenant
    union all
    select 'contents', count(*), 10 from deed.contents r where r.tenant_id = p_tenant
    union all
    select 'erased_contents', count(*), 11 from deed.erased_contents r where r.tenant_id = p_tenant
    union all
    select 'channel_messages', count(*), 12 from deed.channel_messages r where r.tenant_id = p_tenant
    union all
    select 'runs', count(*), 13 from deed.runs r where r.tenant_id = p_tenant
    union all
    select 'run_log', count(*), 14 from deed.run_log r where r.tenant_id = p_tenant
    union all
    select 'run_snapshots', count(*), 15 from deed.run_snapshots r where r.tenant_id = p_tenant
    union all
    select 'run_stale', count(*), 16 from deed.run_stale r where r.tenant_id = p_tenant
    union all
    select 'run_requests', count(*), 17 from deed.run_requests r where r.tenant_id = p_tenant
    union all
    select 'run_steps', count(*), 18 from deed.run_steps r where r.tenant_id = p_tenant
    union all
    select 'plans', count(*), 19 from deed.plans r where r.tenant_id = p_tenant
    union all
    select 'plan_steps', count(*), 20 from deed.plan_steps r where r.tenant_id = p_tenant
    union all
    select 'delivery_holds', count(*), 21 from deed.delivery_holds r where r.tenant_id = p_tenant
    union all
    select 'job_queue', count(*), 22 from deed.job_queue r where r.tenant_id = p_tenant
    union all
    select 'campaign_runs', count(*), 23 from deed.campaign_runs r where r.tenant_id = p_tenant
    union all
    select 'audience_members', count(*), 24 from deed.audience_members r where r.tenant_id = p_tenant
    union all
    select 'audiences', count(*), 25 from deed.audiences r where r.tenant_id = p_tenant
    union all
    select 'campaign_contents', count(*), 26 from deed.campaign_contents r where r.tenant_id = p_tenant
    union all
    select 'campaigns', count(*), 27 from deed.campaigns r where r.tenant_id = p_tenant
    union all
    select 'suppressions', count(*), 28 from deed.suppressions r where r.tenant_id = p_tenant
    union all
    select 'pauses', count(*), 29 from deed.pauses r where r.tenant_id = p_tenant
    union all
    select 'contacts', count(*), 30 from deed.contacts r where r.tenant_id = p_tenant
    union all
    select 'contact_identities', count(*), 31 from deed.contact_identities r where r.tenant_id = p_tenant
    union all
    select 'contact_merges', count(*), 32 from deed.contact_merges r where r.tenant_id = p_tenant
    union all
    select 'identity_conflicts', count(*), 33 from deed.identity_conflicts r where r.tenant_id = p_tenant
    union all
    select 'consents', count(*), 34 from deed.consents r where r.tenant_id = p_tenant
    union all
    select 'erasures', count(*), 35 from deed.erasures r where r.tenant_id = p_tenant
    union all
    select 'tenant_logins', count(*), 36 from deed.tenant_logins r where r.tenant_id = p_tenant
    union all
    select 'tenants', count(*), 37 from deed.tenants r where r.tenant_id = p_tenant
    union all
    select 'audit_log', count(*), 38 from deed.audit_log r where r.tenant_id = p_tenant
  ) c
  order by c.n;
end
$$;
