-- breaking: no
-- Deliveries to people: one row for every call of a provider that is owed,
-- made before anyone makes it (D1).

-- The changes of status that there are; deed.check_transition refuses all
-- others, whoever asks. '' is a row that is not there yet. A person's changes
-- are made by deed.retry_deliveries and deed.settle_delivery alone.
create table deed.delivery_transitions (
  from_status text not null,
  to_status   text not null,
  made_by     text not null,
  meaning     text not null,
  constraint delivery_transitions_pkey primary key (from_status, to_status),
  constraint delivery_transitions_made_by_is_known check (made_by in ('ledger', 'person'))
);

insert into deed.delivery_transitions (from_status, to_status, made_by, meaning) values
  ('', 'queued', 'ledger', 'reserved'),
  ('', 'skipped', 'ledger', 'reserved for one who must not or cannot be written to'),
  ('queued', 'sending', 'ledger', 'about to be called; written before the call'),
  ('queued', 'skipped', 'ledger', 'suppressed since it was reserved'),
  ('queued', 'failed', 'ledger', 'no request can be made of it'),
  ('queued', 'sent', 'ledger', 'put back, and then proved to have been accepted'),
  ('queued', 'called', 'ledger', 'the same, a voice call'),
  ('queued', 'posted', 'ledger', 'the same, a post'),
  ('sending', 'sent', 'ledger', 'accepted by the provider'),
  ('sending', 'called', 'ledger', 'accepted by the provider, a voice call'),
  ('sending', 'posted', 'ledger', 'accepted by the provider, a post'),
  ('sending', 'failed', 'ledger', 'refused for good'),
  ('sending', 'queued', 'ledger', 'certainly not done, or allowed to be done twice'),
  ('sending', 'dead', 'ledger', 'certainly not done, attempts exhausted'),
  ('failed', 'queued', 'person', 'to be tried again'),
  ('dead', 'queued', 'person', 'to be tried again');

-- process_after is the one field that schedules: null is now; of a row in
-- doubt it is when to look again. max_attempts null is the worker's setting
-- (D10). attempt_count and locked_at are the names of
-- seed 002 for attempts and claimed_at; its next_attempt_at is process_after,
-- which has no second name, as nothing but it may look like a schedule.
--
-- lane is what a claim takes apart: '' for most; the recipient's domain where
-- that has a limit of its own, or is a destination of its own.
create table deed.channel_outbox (
  id                  uuid        not null,
  tenant_id           uuid        not null,
  workspace_id        uuid        not null default '00000000-0000-0000-0000-000000000000',
  idempotency_key     bytea       not null,
  status              text        not null default 'queued',
  skipped             boolean     not null default false,
  attempts            int         not null default 0,
  max_attempts        int,
  channel             text        not null,
  provider            text        not null,
  lane                text        not null default '',
  guarantee           text        not null default 'at_most_once',
  created_at          timestamptz not null,
  process_after       timestamptz,
  ord                 timestamptz not null generated always as (coalesce(process_after, created_at)) stored,
  claimed_at          timestamptz,
  lease_until         timestamptz,
  claim               bigint,
  first_called_at    timestamptz,
  called_at        timestamptz,
  repeat_safe_until   timestamptz,
  doubt_since         timestamptz,
  held_at             timestamptz,
  sent_at             timestamptz,
  finished_at         timestamptz,
  updated_at          timestamptz not null,
  run_id              uuid,
  job_id              uuid,
  channel_message_id  uuid,
  attempt_count       int         generated always as (attempts) stored,
  locked_at           timestamptz generated always as (claimed_at) stored,
  claimed_by          text,
  recipient_id        text,
  recipient           text,
  recipient_domain    text        generated always as (case
                        when recipient like '%://%' then lower(substring(recipient from '^[A-Za-z]+://(?:[^@/?#]*@)?([^@/:?#]+)'))
                        when recipient like '%@%' then lower(split_part(recipient, '@', -1)) end) stored,
  correlation_id      text,
  provider_message_id text,
  skip_reason         text,
  doubt_reason        text,
  last_error          text,
  payload             jsonb       not null,
  request             bytea,
  constraint channel_outbox_pkey primary key (id),
  constraint channel_outbox_idempotency_key_key unique (tenant_id, workspace_id, idempotency_key),
  constraint channel_outbox_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint channel_outbox_status_check check (status in ('queued', 'sending', 'sent', 'called', 'posted', 'failed', 'dead', 'skipped')),
  constraint channel_outbox_skipped_status_check check (skipped = false or status = 'skipped'),
  constraint channel_outbox_skipped_has_reason check (status <> 'skipped' or (skipped and skip_reason is not null)),
  constraint channel_outbox_key_is_sha256 check (octet_length(idempotency_key) = 32),
  constraint channel_outbox_channel_is_known check (channel in ('email', 'sms', 'voice', 'social', 'chat', 'webhook')),
  constraint channel_outbox_provider_is_named check (length(provider) between 1 and 100),
  constraint channel_outbox_guarantee_is_known check (guarantee in ('at_most_once', 'at_least_once')),
  constraint channel_outbox_called_is_voice check (status <> 'called' or channel = 'voice'),
  constraint channel_outbox_posted_is_social check (status <> 'posted' or channel = 'social'),
  constraint channel_outbox_sent_is_written check (status <> 'sent' or channel not in ('voice', 'social')),
  constraint channel_outbox_attempts_are_sane check (attempts >= 0 and max_attempts between 1 and 1000),
  constraint channel_outbox_sending_was_begun check (status <> 'sending'
    or (request is not null and claim is not null and attempts > 0 and num_nulls(first_called_at, called_at) = 0)),
  constraint channel_outbox_doubt_is_sending check ((doubt_since is null and held_at is null) or status = 'sending'),
  constraint channel_outbox_doubt_is_whole check (num_nulls(doubt_since, doubt_reason) in (0, 2) and (held_at is null or doubt_since is not null)),
  constraint channel_outbox_lease_is_whole check (num_nulls(claimed_at, lease_until, claimed_by) in (0, 3) and (lease_until is null or claim is not null)),
  constraint channel_outbox_end_is_whole check ((finished_at is null) = (status in ('queued', 'sending'))),
  constraint channel_outbox_end_is_free check (finished_at is null or lease_until is null),
  constraint channel_outbox_sent_at_is_whole check ((sent_at is null) = (status not in ('sent', 'called', 'posted'))),
  constraint channel_outbox_payload_is_object check (jsonb_typeof(payload) = 'object'),
  constraint channel_outbox_recipient_is_short check (length(recipient) <= 2000 and length(recipient_id) <= 200),
  constraint channel_outbox_texts_are_short check (length(last_error) <= 4000 and length(doubt_reason) <= 4000
    and length(correlation_id) <= 200 and length(provider_message_id) <= 500 and length(skip_reason) <= 200)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- Claims: in a tenant's lane the oldest first. No claim column is in an index.
create index channel_outbox_claim_idx on deed.channel_outbox (provider, tenant_id, lane, ord) where status = 'queued';
-- When the next one is due.
create index channel_outbox_due_idx on deed.channel_outbox (provider, ord) where status = 'queued';
-- What is being called or in doubt: never many rows.
create index channel_outbox_sending_idx on deed.channel_outbox (provider, ord) where status = 'sending';
create index channel_outbox_end_idx on deed.channel_outbox (finished_at) where finished_at is not null;
create index idx_channel_outbox_run_id on deed.channel_outbox (run_id) where run_id is not null;
create index channel_outbox_channel_message_idx on deed.channel_outbox (channel_message_id) where channel_message_id is not null;

-- Whom not to write to. address is in lower case.
create table deed.suppressions (
  tenant_id  uuid        not null,
  channel    text        not null,
  address    text        not null,
  reason     text        not null,
  actor      text        not null,
  created_at timestamptz not null,
  constraint suppressions_pkey primary key (tenant_id, channel, address),
  constraint suppressions_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint suppressions_channel_is_known check (channel in ('email', 'sms', 'voice', 'social', 'chat', 'webhook')),
  constraint suppressions_address_is_folded check (address = lower(address) and length(address) between 1 and 2000),
  constraint suppressions_reason_is_short check (length(reason) between 1 and 200)
);

-- The providers that some dispatcher has been started with, without their
-- secrets. lane_per_domain: every recipient's domain is a destination of its own.
create table deed.providers (
  name            text        not null,
  kind            text        not null,
  lane_per_domain boolean     not null default false,
  key_window      interval,
  can_look_up     boolean     not null default false,
  registered_at   timestamptz not null,
  constraint providers_pkey primary key (name),
  constraint providers_name_is_valid check (name ~ '^[A-Za-z0-9._-]{1,100}$'),
  constraint providers_kind_is_short check (length(kind) between 1 and 100)
);

-- Token buckets that all workers share: of a provider (domain '') and of
-- recipients' domains. Claims take tokens by the batch.
create table deed.rate_limits (
  provider text             not null,
  domain   text             not null default '',
  rate     double precision not null,
  burst    double precision not null,
  tokens   double precision not null,
  at       timestamptz      not null,
  constraint rate_limits_pkey primary key (provider, domain),
  constraint rate_limits_are_sane check (rate > 0 and burst >= 1)
) with (fillfactor = 20);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['delivery_transitions', 'channel_outbox', 'suppressions', 'providers', 'rate_limits'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
  foreach v_table in array array['channel_outbox', 'suppressions'] loop
    execute format($policy$
      create policy %I on deed.%I for select to deed_app
        using (tenant_id = (
          select coalesce(
            nullif(current_setting('app.current_tenant_id', true), '')::uuid,
            case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
          )
          from deed.settings s
        ))$policy$, v_table || '_app', v_table);
    execute format('grant select on deed.%I to deed_app', v_table);
  end loop;
end
$$;

-- Which calls changed a delivery: its audit rows are found by its times.
create index audit_log_at_idx on deed.audit_log using brin (at) with (pages_per_range = 16);
