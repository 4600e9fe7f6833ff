-- breaking: no
-- Who did what, when and why: one append-only log of operators' acts and of
-- the transitions that must be explained later (C6).

create table deed.audit_log (
  n            bigint      not null generated always as identity,
  at           timestamptz not null default clock_timestamp(),
  tenant_id    uuid,
  actor        text        not null,
  login        text        not null default session_user,
  action       text        not null,
  subject_type text        not null,
  subject_id   text,
  from_status  text,
  to_status    text,
  reason       text,
  affected     bigint      not null default 1,
  details      jsonb,
  constraint audit_log_pkey primary key (n),
  constraint audit_log_actor_is_named check (length(actor) between 1 and 200),
  constraint audit_log_affected_is_count check (affected >= 0)
);

create index audit_log_subject_idx on deed.audit_log (subject_type, subject_id, n);

alter table deed.audit_log enable row level security;
alter table deed.audit_log force row level security;
create policy audit_log_owner on deed.audit_log to current_user using (true) with check (true);
create policy audit_log_worker on deed.audit_log to deed_worker using (true) with check (true);
create policy audit_log_admin on deed.audit_log to deed_admin using (true) with check (true);
create policy audit_log_app on deed.audit_log for select to deed_app
  using (tenant_id = (
    select coalesce(
      nullif(current_setting('app.current_tenant_id', true), '')::uuid,
      case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
    )
    from deed.settings s
  ));
grant select on deed.audit_log to deed_app, deed_worker, deed_admin;
grant insert on deed.audit_log to deed_worker, deed_admin;
