-- breaking: no
-- Who carries out campaigns, as long as they say so (deed.note_campaigns): who deploys one is told where nobody does.
create table deed.campaign_workers (
  worker     text not null,
  seen_until timestamptz not null,
  constraint campaign_workers_pkey primary key (worker),
  constraint campaign_workers_are_named check (length(worker) between 1 and 200)
) with (fillfactor = 50);
alter table deed.campaign_workers enable row level security;
alter table deed.campaign_workers force row level security;
create policy campaign_workers_owner on deed.campaign_workers to current_user using (true) with check (true);
create policy campaign_workers_worker on deed.campaign_workers for select to deed_worker using (true);
create policy campaign_workers_admin on deed.campaign_workers for select to deed_admin using (true);
grant select on deed.campaign_workers to deed_worker, deed_admin;
