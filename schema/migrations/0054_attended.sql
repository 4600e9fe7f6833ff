-- breaking: no
-- When somebody last asked for a queue subscription's messages, to within twenty
-- seconds: deed.note_asking.
create table deed.attended (
  subscription int         not null,
  asked_at     timestamptz not null,
  constraint attended_pkey primary key (subscription)
) with (fillfactor = 50);

alter table deed.attended enable row level security;
alter table deed.attended force row level security;
create policy attended_owner on deed.attended to current_user using (true) with check (true);
create policy attended_worker on deed.attended for select to deed_worker using (true);
create policy attended_admin on deed.attended for select to deed_admin using (true);
grant select on deed.attended to deed_worker, deed_admin;

insert into deed.attended (subscription, asked_at) select s.id, clock_timestamp() from deed.subscriptions s;
