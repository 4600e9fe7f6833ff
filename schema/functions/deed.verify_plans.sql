-- deed.verify_plans: the part of deed.verify that is about plans, but for those of tenants
-- that were removed: each is what was stored, and its graph is what it says.
create or replace function deed.verify_plans() returns table (
  invariant text, tenant_id uuid, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with known as materialized (
    select p.* from deed.plans p where p.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r))
  ),
  sound as materialized (
    select p.* from known p where sha256(p.body) = p.sha256
  ),
  said as (
    select p.tenant_id, p.plan_id, p.plan_version, g.place, g.step_id, g.kind, g.needs_success, g.depends, g.successors, g.attempts, g.backoff, g.at_most_once, g.queue
    from sound p
    cross join lateral deed.plan_graph(p.body) g
  ),
  kept as (
    select s.tenant_id, s.plan_id, s.plan_version, s.place, s.step_id, s.kind, s.needs_success, s.depends, s.successors, s.attempts, s.backoff, s.at_most_once, s.queue
    from deed.plan_steps s
    where s.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r))
      and not exists (select from known p where p.tenant_id = s.tenant_id and p.plan_id = s.plan_id and p.plan_version = s.plan_version and sha256(p.body) <> p.sha256)
  )
  select 'plan is not what was stored', p.tenant_id, format('plan %s@%s', p.plan_id, p.plan_version)
  from known p
  where sha256(p.body) <> p.sha256
  union all
  select 'plan is stored under another name', p.tenant_id, format('plan %s@%s', p.plan_id, p.plan_version)
  from sound p
  cross join lateral (select convert_from(p.body, 'UTF8')::json as said) b
  where (p.plan_id, p.plan_version, p.steps) is distinct from (b.said ->> 'plan', b.said ->> 'version', (select count(*)::int from json_each(b.said -> 'steps')))
  union all
  select 'approval and hold of a plan are not what the plan says', p.tenant_id, format('plan %s@%s', p.plan_id, p.plan_version)
  from sound p
  cross join lateral (select convert_from(p.body, 'UTF8')::json as said) b
  where (p.approval, p.hold) is distinct from (
    coalesce(b.said ->> 'approval' = 'person', false), case when json_typeof(b.said -> 'on_failure') = 'object' then deed.plan_duration(b.said -> 'on_failure' ->> 'hold') end)
  union all
  select 'graph of a plan is not what the plan says', d.tenant_id, format('plan %s@%s, step %s', d.plan_id, d.plan_version, d.step_id)
  from (
    (select s.* from said s except select k.* from kept k)
    union all
    (select k.* from kept k except select s.* from said s)
  ) d
$$;
