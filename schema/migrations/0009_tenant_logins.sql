-- breaking: no
-- Which tenants a login is held to, and one function that says what a reader
-- may see, for all policies.

-- A login without a row is trusted to set its tenant.
create table deed.tenant_logins (
  login      text        not null,
  tenant_id  uuid        not null,
  created_at timestamptz not null default clock_timestamp(),
  constraint tenant_logins_pkey primary key (login, tenant_id),
  constraint tenant_logins_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint tenant_logins_login_is_short check (length(login) between 1 and 63)
);

alter table deed.tenant_logins enable row level security;
alter table deed.tenant_logins force row level security;
create policy tenant_logins_owner on deed.tenant_logins to current_user using (true) with check (true);
create policy tenant_logins_worker on deed.tenant_logins for select to deed_worker using (true);
create policy tenant_logins_admin on deed.tenant_logins for select to deed_admin using (true);
grant select on deed.tenant_logins to deed_worker, deed_admin;

-- Whether any login is bound: publishers look no further where none is.
alter table deed.settings add column bound_logins boolean not null default false;

-- Stands for the function that is installed after the migrations, and says what
-- the policies said.
create function deed.current_tenant() returns uuid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    nullif(current_setting('app.current_tenant_id', true), '')::uuid,
    case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
  )
  from deed.settings s
$$;
revoke all on function deed.current_tenant() from public;
grant execute on function deed.current_tenant() to deed_app, deed_worker, deed_admin;

-- All tables whose policies name the setting themselves.
do $$
declare
  v_policy record;
begin
  for v_policy in
    select p.polname, c.relname
    from pg_policy p
    join pg_class c on c.oid = p.polrelid
    where c.relnamespace = 'deed'::regnamespace and p.polname = c.relname || '_app'
      and pg_get_expr(p.polqual, p.polrelid) like '%app.current_tenant_id%'
    order by c.relname
  loop
    execute format('alter policy %I on deed.%I using (tenant_id = (select deed.current_tenant()))', v_policy.polname, v_policy.relname);
  end loop;
end
$$;

create or replace view deed.finished with (security_barrier = true) as
select r.subscription, l.id, l.slot, l.tenant_id, l.topic, l.key, l.aggregate_type, l.content_type, l.payload,
  l.created_at, l.process_after, coalesce(r.attempts[i.n], 0) as attempts, r.claimed_at, r.worker, r.finished_at
from deed.receipts r
join deed.subscriptions s on s.id = r.subscription and s.door
cross join lateral unnest(r.ids) with ordinality i(id, n)
join deed.log l on l.id = i.id
where r.outcome = 'delivered'
  and (
    (select pg_has_role(current_user, 'deed_worker', 'usage') or pg_has_role(current_user, 'deed_admin', 'usage'))
    or l.tenant_id = (select deed.current_tenant())
  );
