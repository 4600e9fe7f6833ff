-- breaking: no
-- What contacts agreed to, and took back (O15, D11).

-- Append-only. pending: asked for, and to be confirmed until expires_at. evidence is
-- where and how it was said; an erasure takes it away.
create table deed.consents (
  n          bigint      not null default nextval('deed.contact_seq'),
  tenant_id  uuid        not null,
  contact_id uuid        not null,
  channel    text        not null,
  purpose    text        not null,
  state      text        not null,
  source     text        not null,
  evidence   jsonb       not null default '{}',
  actor      text        not null,
  at         timestamptz not null,
  expires_at timestamptz,
  constraint consents_pkey primary key (n),
  constraint consents_contact_fkey foreign key (tenant_id, contact_id) references deed.contacts (tenant_id, id),
  constraint consents_channel_is_known check (channel in ('email', 'sms', 'voice', 'social', 'chat', 'webhook')),
  constraint consents_purpose_is_named check (purpose ~ '^[A-Za-z0-9._-]{1,100}$'),
  constraint consents_state_is_known check (state in ('granted', 'revoked', 'pending')),
  constraint consents_pending_ends check ((state = 'pending') = (expires_at is not null)),
  constraint consents_source_is_short check (length(source) between 1 and 200),
  constraint consents_actor_is_short check (length(actor) between 1 and 200),
  constraint consents_evidence_is_object check (jsonb_typeof(evidence) = 'object' and pg_column_size(evidence) <= 10000)
);

create index consents_contact_idx on deed.consents (contact_id, channel, purpose, n);

alter table deed.consents enable row level security;
alter table deed.consents force row level security;
create policy consents_owner on deed.consents to current_user using (true) with check (true);
create policy consents_worker on deed.consents for select to deed_worker using (true);
create policy consents_admin on deed.consents for select to deed_admin using (true);
create policy consents_app on deed.consents for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.consents to deed_app, deed_worker, deed_admin;

-- A suppression that stands for consents alone is lifted by the next grant.
alter table deed.suppressions add column by_consent boolean not null default false;
