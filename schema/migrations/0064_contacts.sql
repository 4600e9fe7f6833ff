-- breaking: no
-- Who somebody is: contacts, by what they are known, and what they agreed to (O15).

-- zone and locale are for people: when it is night, in which language. A contact that
-- was merged is another name of the one it was merged into, and keeps what it had, so
-- that the merge can be undone.
create table deed.contacts (
  id          uuid        not null,
  tenant_id   uuid        not null,
  data        jsonb       not null default '{}',
  zone        text,
  locale      text,
  created_at  timestamptz not null,
  updated_at  timestamptz not null,
  erased_at   timestamptz,
  merged_into uuid,
  constraint contacts_pkey primary key (id),
  constraint contacts_of_tenant_key unique (tenant_id, id),
  constraint contacts_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint contacts_merged_fkey foreign key (tenant_id, merged_into) references deed.contacts (tenant_id, id),
  constraint contacts_data_is_object check (jsonb_typeof(data) = 'object' and pg_column_size(data) <= 70000),
  constraint contacts_texts_are_short check (length(zone) <= 64 and length(locale) <= 35),
  constraint contacts_merged_is_another check (merged_into <> id),
  constraint contacts_erased_is_empty check (erased_at is null or (data = '{}' and num_nonnulls(zone, locale) = 0))
) with (fillfactor = 80);

create index contacts_merged_idx on deed.contacts (merged_into) where merged_into is not null;

-- value is as values are compared (deed.check_identity).
create table deed.contact_identities (
  tenant_id   uuid        not null,
  contact_id  uuid        not null,
  type        text        not null,
  value       text        not null,
  verified_at timestamptz,
  created_at  timestamptz not null,
  constraint contact_identities_pkey primary key (contact_id, type, value),
  constraint contact_identities_contact_fkey foreign key (tenant_id, contact_id) references deed.contacts (tenant_id, id),
  constraint contact_identities_type_is_named check (type ~ '^[a-z][a-z0-9_]{0,62}$'),
  constraint contact_identities_value_is_short check (length(value) between 1 and 500)
);

-- type is last, as the condition says it: where it is known a look leaves it out, and
-- would read all of a tenant's if it stood before the value.
create unique index uniq_identity_external on deed.contact_identities (tenant_id, value, type) where type = 'external_id';
create unique index uniq_identity_email_lower on deed.contact_identities (tenant_id, lower(value), type) where type = 'email';
create unique index uniq_identity_other on deed.contact_identities (tenant_id, type, value) where type not in ('external_id', 'email');

-- What was to be one contact and is known as several: for a person to decide.
create table deed.identity_conflicts (
  n           bigint      not null generated always as identity,
  tenant_id   uuid        not null,
  contact_ids uuid[]      not null,
  types       text[]      not null,
  actor       text        not null,
  at          timestamptz not null,
  times       int         not null default 1,
  settled_at  timestamptz,
  constraint identity_conflicts_pkey primary key (n),
  constraint identity_conflicts_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint identity_conflicts_are_several check (cardinality(contact_ids) > 1)
);

create unique index identity_conflicts_open_idx on deed.identity_conflicts (tenant_id, contact_ids) where settled_at is null;

-- The numbers of merges and of consents: which of two came first, since both are given
-- with the contact locked.
create sequence deed.contact_seq;

-- What was merged, by whom and why, and taken apart again.
create table deed.contact_merges (
  n           bigint      not null default nextval('deed.contact_seq'),
  tenant_id   uuid        not null,
  from_id     uuid        not null,
  into_id     uuid        not null,
  reason      text        not null,
  actor       text        not null,
  at          timestamptz not null,
  undone_at   timestamptz,
  undone_by   text,
  undone_for  text,
  constraint contact_merges_pkey primary key (n),
  constraint contact_merges_from_fkey foreign key (tenant_id, from_id) references deed.contacts (tenant_id, id),
  constraint contact_merges_into_fkey foreign key (tenant_id, into_id) references deed.contacts (tenant_id, id),
  constraint contact_merges_reason_is_short check (length(reason) between 1 and 2000),
  constraint contact_merges_actor_is_short check (length(actor) between 1 and 200),
  constraint contact_merges_undone_is_short check (length(undone_by) <= 200 and length(undone_for) <= 2000),
  constraint contact_merges_undone_is_whole check (num_nulls(undone_at, undone_by, undone_for) in (0, 3))
);

create unique index contact_merges_open_idx on deed.contact_merges (from_id) where undone_at is null;
create index contact_merges_into_idx on deed.contact_merges (into_id);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['contacts', 'contact_identities', 'identity_conflicts', 'contact_merges'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('create policy %I on deed.%I for select to deed_app using (tenant_id = (select deed.current_tenant()))', v_table || '_app', v_table);
    execute format('grant select on deed.%I to deed_app, deed_worker, deed_admin', v_table);
  end loop;
end
$$;
