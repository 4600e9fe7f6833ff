-- The statements of package run/plan.

-- name: put
select created from deed.put_plan($1::bytea, $2::text, $3::text::uuid);

-- name: load
select body, expected, actual, created_at, created_by from deed.load_plan($1::text, $2::text, $3::bytea, $4::text::uuid);

-- name: newest
select p.plan_version
from deed.plans p
where p.plan_id = $1::text and p.tenant_id = coalesce($2::text::uuid, (select deed.current_tenant()))
order by p.created_at desc, p.plan_version desc
limit 1;

-- name: list
select p.tenant_id, p.plan_id, p.plan_version, encode(p.sha256, 'hex'), p.steps, p.created_at, p.created_by
from deed.plans p
where ($1::text is null or p.tenant_id = $1::text::uuid) and ($2::text is null or p.plan_id = $2::text)
  and ($3::text is null or (p.plan_id, p.plan_version, p.tenant_id) > ($3::text, $4::text, $5::text::uuid))
order by p.plan_id, p.plan_version, p.tenant_id
limit $6::int;
