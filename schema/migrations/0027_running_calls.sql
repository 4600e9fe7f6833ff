-- breaking: no
-- The oldest call of a sink, where one has been running for a while: one row
-- for each process and subscription, renewed while it runs.
create table deed.running_calls (
  subscription int         not null,
  worker       uuid        not null,
  name         text        not null,
  id           bigint      not null,
  message_id   uuid        not null,
  messages     int         not null,
  since        timestamptz not null,
  seen_until   timestamptz not null,
  constraint running_calls_pkey primary key (subscription, worker)
) with (fillfactor = 50);

alter table deed.running_calls enable row level security;
alter table deed.running_calls force row level security;
create policy running_calls_owner on deed.running_calls to current_user using (true) with check (true);
create policy running_calls_worker on deed.running_calls for select to deed_worker using (true);
create policy running_calls_admin on deed.running_calls for select to deed_admin using (true);
grant select on deed.running_calls to deed_worker, deed_admin;
