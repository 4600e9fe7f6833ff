-- breaking: no
-- Which subscriptions pause since their sink is unavailable, and why: one row for
-- each process and subscription, renewed while it pauses.
create table deed.sink_pauses (
  subscription int         not null,
  worker       uuid        not null,
  name         text        not null,
  why          text        not null,
  since        timestamptz not null,
  seen_until   timestamptz not null,
  constraint sink_pauses_pkey primary key (subscription, worker)
) with (fillfactor = 50);

alter table deed.sink_pauses enable row level security;
alter table deed.sink_pauses force row level security;
create policy sink_pauses_owner on deed.sink_pauses to current_user using (true) with check (true);
create policy sink_pauses_worker on deed.sink_pauses for select to deed_worker using (true);
create policy sink_pauses_admin on deed.sink_pauses for select to deed_admin using (true);
grant select on deed.sink_pauses to deed_worker, deed_admin;
