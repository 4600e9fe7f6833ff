-- breaking: yes
-- Retention: content is dropped by partitions; what is not finished is moved
-- out of them first.

-- The content of messages that are not finished and whose partition goes: the
-- columns of deed.log, in its order. A message is in one of the two.
create table deed.kept (
  like deed.log including defaults,
  constraint kept_pkey primary key (slot, id)
);

-- moving is what was visible when the partition began to go, moving_window the
-- last window then, and read_window one that sees all of its messages that
-- streams have read: from there on deed.verify adds up, and of a partition that
-- has one it asks nothing any more. Messages have been moved out up to
-- (moved_subscription, moved_id), and all of them at moved_at; the content went
-- at emptied_at, the table at dropped_at.
alter table deed.partitions
  add column moving             pg_snapshot,
  add column moving_window      bigint,
  add column read_window        bigint,
  add column moved_subscription int,
  add column moved_id           bigint,
  add column moved_at           timestamptz,
  add column emptied_at         timestamptz,
  add column tried_at           timestamptz,
  add column dropped_at         timestamptz;

-- How long messages of topics that nobody declared are kept.
alter table deed.settings
  add column retention interval not null default interval '7 days',
  add constraint settings_retention_is_positive check (retention > interval '0');

create index receipts_lost_idx on deed.receipts (finished_at) where finished = 0;

alter table deed.kept enable row level security;
alter table deed.kept force row level security;
create policy kept_owner on deed.kept to current_user using (true) with check (true);
create policy kept_worker on deed.kept for select to deed_worker using (true);
create policy kept_admin on deed.kept for select to deed_admin using (true);
create policy kept_app on deed.kept for select to deed_app
  using (tenant_id = (
    select coalesce(
      nullif(current_setting('app.current_tenant_id', true), '')::uuid,
      case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
    )
    from deed.settings s
  ));
grant select on deed.kept to deed_app, deed_worker, deed_admin;
