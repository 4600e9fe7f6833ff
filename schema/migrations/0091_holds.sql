-- breaking: no
-- Runs of campaigns that are paused or cancelled: nothing of theirs is claimed.
alter table deed.campaign_runs
  add column paused_at    timestamptz,
  add column cancelled_at timestamptz;

create table deed.delivery_holds (
  run_id    uuid        not null,
  tenant_id uuid        not null,
  at        timestamptz not null,
  constraint delivery_holds_pkey primary key (run_id)
);
alter table deed.delivery_holds enable row level security;
alter table deed.delivery_holds force row level security;
create policy delivery_holds_owner on deed.delivery_holds to current_user using (true) with check (true);
create policy delivery_holds_worker on deed.delivery_holds for select to deed_worker using (true);
create policy delivery_holds_admin on deed.delivery_holds for select to deed_admin using (true);
create policy delivery_holds_app on deed.delivery_holds for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.delivery_holds to deed_app, deed_worker, deed_admin;
