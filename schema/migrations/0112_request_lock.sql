-- breaking: no
-- Whoever looks up the version of a request that names none writes the request's key here and takes it away again: another
-- one waits at the index until that transaction has ended (deed.version_of_request). It stays empty.
create table deed.run_request_lock (
  request_key bytea not null,
  constraint run_request_lock_pkey primary key (request_key)
);
alter table deed.run_request_lock enable row level security;
alter table deed.run_request_lock force row level security;
create policy run_request_lock_owner on deed.run_request_lock to current_user using (true) with check (true);
