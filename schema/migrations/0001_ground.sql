-- breaking: yes
-- The ground: the installation's settings, tenants, and who may see what.
--
-- Row-level security is forced on every table. Policies are per role:
-- deed_app is held to its tenant, deed_worker and deed_admin cross tenants,
-- and the owner (under whom the publish functions run) is let through because
-- those functions check the tenant themselves.

create table deed.settings (
  is_only       boolean     not null default true,
  installation  uuid        not null default gen_random_uuid(),
  single_tenant boolean     not null default true,
  strict_topics boolean     not null default false,
  max_payload   int         not null default 1048576,
  dedup_window  interval    not null default interval '7 days',
  list_version  bigint      not null default 1,
  installed_at  timestamptz not null default clock_timestamp(),
  constraint settings_pkey primary key (is_only),
  constraint settings_is_one_row check (is_only),
  constraint settings_max_payload_is_sane check (max_payload between 1024 and 67108864),
  constraint settings_dedup_window_is_positive check (dedup_window > interval '0')
);

insert into deed.settings default values;

create table deed.tenants (
  tenant_id  uuid        not null,
  name       text        not null,
  created_at timestamptz not null default clock_timestamp(),
  constraint tenants_pkey primary key (tenant_id),
  constraint tenants_name_is_unique unique (name),
  constraint tenants_name_is_short check (length(name) between 1 and 200)
);

insert into deed.tenants (tenant_id, name)
values ('00000000-0000-0000-0000-000000000000', 'default');

alter table deed.settings enable row level security;
alter table deed.settings force row level security;
create policy settings_owner on deed.settings to current_user using (true) with check (true);
create policy settings_app on deed.settings for select to deed_app using (true);
create policy settings_worker on deed.settings for select to deed_worker using (true);
create policy settings_admin on deed.settings to deed_admin using (true) with check (true);

alter table deed.tenants enable row level security;
alter table deed.tenants force row level security;
create policy tenants_owner on deed.tenants to current_user using (true) with check (true);
create policy tenants_app on deed.tenants for select to deed_app
  using (tenant_id = (
    select coalesce(
      nullif(current_setting('app.current_tenant_id', true), '')::uuid,
      case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
    )
    from deed.settings s
  ));
create policy tenants_worker on deed.tenants for select to deed_worker using (true);
create policy tenants_admin on deed.tenants to deed_admin using (true) with check (true);

grant select on deed.settings to deed_app, deed_worker, deed_admin;
grant update on deed.settings to deed_admin;
grant select on deed.tenants to deed_app, deed_worker, deed_admin;
