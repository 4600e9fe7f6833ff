-- breaking: no
-- Files that are old, but needed, are set aside for a day (deed.purge_contents): to look at the same
-- ones for ever would leave no time for those that may go.
alter table deed.contents add column passed_at timestamptz;

-- Files that an erasure would have taken, but which somebody else had at that moment, or had put or named
-- just before and may be about to name. They are looked at again (deed.purge_contents). Rows are
-- only added beside an erasure, so that two of them never wait for each other.
create table deed.erased_contents (
  n         bigint      generated always as identity,
  tenant_id uuid        not null,
  sha256    bytea       not null,
  actor     text        not null,
  tried_at  timestamptz not null,
  constraint erased_contents_pkey primary key (n)
);
create index erased_contents_tried_idx on deed.erased_contents (tried_at);

alter table deed.erased_contents enable row level security;
alter table deed.erased_contents force row level security;
create policy erased_contents_owner on deed.erased_contents to current_user using (true) with check (true);
create policy erased_contents_worker on deed.erased_contents for select to deed_worker using (true);
create policy erased_contents_admin on deed.erased_contents for select to deed_admin using (true);
grant select on deed.erased_contents to deed_worker, deed_admin;
