-- breaking: no
-- Files that deliveries name by their SHA-256 instead of having them in their payloads: the
-- same bytes are a tenant's once. used_at is when they were last put or named, to within a
-- day; a file goes that nothing unfinished needs and that was used long ago (deed.purge_contents).
create table deed.contents (
  tenant_id  uuid        not null,
  sha256     bytea       not null,
  bytes      bytea       not null,
  size       int         not null,
  type       text        not null,
  created_at timestamptz not null,
  used_at    timestamptz not null,
  constraint contents_pkey primary key (tenant_id, sha256),
  constraint contents_is_named_by_its_bytes check (sha256 = sha256(bytes) and size = octet_length(bytes)),
  constraint contents_is_small check (size between 1 and 7340032),
  constraint contents_type_is_short check (length(type) between 1 and 200)
);
alter table deed.contents alter column bytes set storage external; -- files are packed already
create index contents_used_idx on deed.contents (used_at);

alter table deed.contents enable row level security;
alter table deed.contents force row level security;
create policy contents_owner on deed.contents to current_user using (true) with check (true);
create policy contents_worker on deed.contents for select to deed_worker using (true);
create policy contents_admin on deed.contents for select to deed_admin using (true);
create policy contents_app on deed.contents for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.contents to deed_app, deed_worker, deed_admin;

-- Those that a delivery names; null: none.
alter table deed.channel_outbox add column contents bytea[];
