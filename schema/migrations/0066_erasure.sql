-- breaking: no
-- A contact can be erased (D12).

-- Keys of the installation, for the functions alone: no role has a grant. inner_key
-- and outer_key are a key xor HMAC's two constants.
create table deed.secrets (
  name      text        not null,
  inner_key bytea       not null,
  outer_key bytea       not null,
  made_at   timestamptz not null,
  constraint secrets_pkey primary key (name),
  constraint secrets_are_blocks check (octet_length(inner_key) = 64 and octet_length(outer_key) = 64)
);
alter table deed.secrets enable row level security;
alter table deed.secrets force row level security;
create policy secrets_owner on deed.secrets to current_user using (true) with check (true);

insert into deed.secrets (name, inner_key, outer_key, made_at)
select 'address',
  string_agg(set_byte('\x00', 0, b.byte # 54), '' order by b.i),
  string_agg(set_byte('\x00', 0, b.byte # 92), '' order by b.i),
  clock_timestamp()
from (
  select i, case when i < 32 then get_byte(k.bytes, i) else 0 end as byte
  from (select sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) as bytes offset 0) k
  cross join generate_series(0, 63) i
) b;

-- Who was erased, by all the ids that were theirs.
create table deed.erasures (
  n           bigint      not null generated always as identity,
  tenant_id   uuid        not null,
  contact_id  uuid        not null,
  names       uuid[]      not null,
  reason      text        not null,
  actor       text        not null,
  at          timestamptz not null,
  deliveries  bigint      not null,
  finished_at timestamptz,
  exported_at timestamptz,
  constraint erasures_pkey primary key (n),
  constraint erasures_contact_fkey foreign key (tenant_id, contact_id) references deed.contacts (tenant_id, id),
  constraint erasures_reason_is_short check (length(reason) between 1 and 2000),
  constraint erasures_actor_is_short check (length(actor) between 1 and 200)
);
create unique index erasures_contact_idx on deed.erasures (contact_id);
create index erasures_unexported_idx on deed.erasures (n) where exported_at is null;
create index erasures_tenant_idx on deed.erasures (tenant_id, n);

-- How far those are that have not ended: deliveries that had been reserved until then,
-- and name one of the ids, or go to one of the addresses, which no role may read.
-- xid is the erasure's transaction; reached is the last delivery that was looked at, and
-- waiting are those that are in somebody's hand.
create table deed.erasing (
  n         bigint not null,
  xid       xid8   not null,
  channels  text[] not null,
  addresses text[] not null,
  reached   uuid   not null default '00000000-0000-0000-0000-000000000000',
  waiting   uuid[] not null default '{}',
  tried_at  timestamptz,
  constraint erasing_pkey primary key (n),
  constraint erasing_n_fkey foreign key (n) references deed.erasures (n)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['erasures', 'erasing'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
  end loop;
end
$$;
create policy erasures_worker on deed.erasures for select to deed_worker using (true);
create policy erasures_admin on deed.erasures for select to deed_admin using (true);
create policy erasures_app on deed.erasures for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.erasures to deed_app, deed_worker, deed_admin;

-- For whom a delivery is, when it was erased, and then of its request the SHA-256.
alter table deed.channel_outbox
  add column contact_id uuid,
  add column erased_at timestamptz,
  add column request_sha256 bytea;
