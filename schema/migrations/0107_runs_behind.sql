-- breaking: no
-- Runs that are to be projected though no message says so: those that a projector passed over,
-- since somebody had them locked, and those whose snapshots a redaction took away. seq is the
-- event up to which. No key by run: who adds one waits for nobody.
create table deed.run_behind (
  n      bigint not null generated always as identity,
  run_id uuid   not null,
  seq    bigint not null,
  constraint run_behind_pkey primary key (n)
);
do $$
begin
  alter table deed.run_behind enable row level security;
  alter table deed.run_behind force row level security;
  execute 'create policy run_behind_owner on deed.run_behind to current_user using (true) with check (true)';
  create policy run_behind_worker on deed.run_behind for select to deed_worker using (true);
  create policy run_behind_admin on deed.run_behind for select to deed_admin using (true);
  grant select on deed.run_behind to deed_worker, deed_admin;
end
$$;
insert into deed.run_behind (run_id, seq)
select r.run_id, l.run_seq
from deed.runs r
cross join lateral (select o.run_seq from deed.run_log o where o.run_id = r.run_id order by o.run_seq desc limit 1) l
where r.redacted_at is not null and not exists (select from deed.run_snapshots s where s.run_id = r.run_id);
