-- breaking: no
-- Subscriptions and topics that were removed, and how far they have been cleared away.

-- One row for each subscription that was removed. made_by removed it; whoever
-- may still publish to it has a transaction id below upto, of the cluster
-- system_identifier. Its pending rows are taken away in passes by number: this
-- one has come to at_id, has left some that others had locked (left_some), and is
-- the last if it is whole (is_final: it began when all below upto had ended).
--
-- A topic that was removed has a row too, without a name: what its own slots
-- hold for the subscription 0 is taken away.
--
-- A row stays until the log has nothing left of the time before, up to log_id.
create table deed.removals (
  n                 bigint      not null generated always as identity,
  subscription      int         not null,
  topic             text        not null,
  name              text,
  slot_base         int         not null,
  whole             boolean     not null,
  start             text,
  list_version      bigint,
  log_id            bigint      not null,
  actor             text        not null,
  reason            text        not null,
  removed_at        timestamptz not null default clock_timestamp(),
  made_by           xid8        not null,
  upto              xid8,
  system_identifier bigint,
  at_id             bigint      not null default 0,
  left_some         boolean     not null default false,
  is_final          boolean     not null default false,
  waits             boolean     not null default false,
  taken             bigint      not null default 0,
  finished_at       timestamptz,
  constraint removals_pkey primary key (n),
  constraint removals_is_named check ((name is null) = (subscription = 0)),
  constraint removals_taken_is_count check (taken >= 0)
);

create index removals_subscription_idx on deed.removals (subscription);
create index removals_topic_idx on deed.removals (topic);

alter table deed.removals enable row level security;
alter table deed.removals force row level security;
create policy removals_owner on deed.removals to current_user using (true) with check (true);
create policy removals_worker on deed.removals for select to deed_worker using (true);
create policy removals_admin on deed.removals for select to deed_admin using (true);
grant select on deed.removals to deed_worker, deed_admin;
