-- breaking: no
-- Seals of the audit log: a chain of hashes over its rows, by their numbers, each signed by
-- whoever has the key; and what blinds the hash of what an erasure may take away from a row.

-- leaves has 40 bytes a row, in their order: the number, and the row's hash. previous is the
-- sha256 of the seal before, and 32 zeros of the first.
create table deed.audit_seals (
  k         bigint      not null,
  from_n    bigint      not null,
  upto_n    bigint      not null,
  rows      int         not null,
  leaves    bytea       not null,
  previous  bytea       not null,
  sha256    bytea       not null,
  key       text        not null,
  signature bytea       not null,
  at        timestamptz not null,
  constraint audit_seals_pkey primary key (k),
  constraint audit_seals_from_key unique (from_n),
  constraint audit_seals_are_counted check (k >= 1),
  constraint audit_seals_numbers_are_a_range check (from_n >= 0 and upto_n > from_n),
  constraint audit_seals_leaves_are_whole check (rows >= 1 and octet_length(leaves) = rows * 40),
  constraint audit_seals_hashes_are_whole check (octet_length(previous) = 32 and octet_length(sha256) = 32 and octet_length(signature) = 64 and length(key) = 16)
);
alter table deed.audit_seals alter column leaves set storage external; -- hashes do not pack

-- sha256 is over salt and the part; without the salt, which goes with the part, it tells nothing.
create table deed.audit_blinds (
  n      bigint not null,
  part   text   not null,
  salt   bytea,
  sha256 bytea  not null,
  constraint audit_blinds_pkey primary key (n, part),
  constraint audit_blinds_part_is_known check (part in ('reason', 'subject', 'details')),
  constraint audit_blinds_are_whole check (octet_length(salt) = 16 and octet_length(sha256) = 32)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['audit_seals', 'audit_blinds'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;
