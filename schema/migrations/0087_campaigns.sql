-- breaking: no
-- Campaigns: what many people are to get once, and the runs that bring it to them (C1 to C6).

-- Which run an act belongs to; null: none of a campaign's.
alter table deed.audit_log add column run_id uuid;

create table deed.campaigns (
  id           uuid        not null,
  tenant_id    uuid        not null,
  workspace_id uuid        not null,
  name         text        not null,
  created_at   timestamptz not null,
  constraint campaigns_pkey primary key (id),
  constraint campaigns_name_key unique (tenant_id, workspace_id, name),
  constraint campaigns_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint campaigns_name_is_short check (length(name) between 1 and 200)
);

-- What is said, as templates; never changed. sha256 is of all that follows it, so that the
-- same content is one row.
create table deed.campaign_contents (
  id             uuid        not null,
  campaign_id    uuid        not null,
  tenant_id      uuid        not null,
  created_at     timestamptz not null,
  sha256         bytea       not null,
  asset_id       text        not null,
  variant        text        not null,
  subject        text,
  text           text,
  html           text,
  script         text,
  script_version text,
  post_id        text,
  constraint campaign_contents_pkey primary key (id),
  constraint campaign_contents_sha256_key unique (campaign_id, sha256),
  constraint campaign_contents_campaign_fkey foreign key (campaign_id) references deed.campaigns (id),
  constraint campaign_contents_sha256_is_one check (octet_length(sha256) = 32),
  constraint campaign_contents_names_are_short check (length(variant) <= 100 and length(asset_id) between 1 and 200
    and length(script_version) between 1 and 200 and length(post_id) between 1 and 200),
  constraint campaign_contents_texts_are_bounded check (length(subject) <= 2000 and octet_length(text) <= 1048576 and octet_length(html) <= 1048576 and octet_length(script) <= 1048576)
);

-- To whom: the list of intended items, without which nothing could be found missing (C4).
-- It is loaded in batches, and once ready never changes but for erasures.
create table deed.audiences (
  id           uuid        not null,
  tenant_id    uuid        not null,
  workspace_id uuid        not null,
  name         text        not null,
  channel      text        not null,
  status       text        not null default 'loading',
  members      bigint      not null default 0,
  created_at   timestamptz not null,
  ready_at     timestamptz,
  constraint audiences_pkey primary key (id),
  constraint audiences_name_key unique (tenant_id, workspace_id, name),
  constraint audiences_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint audiences_name_is_short check (length(name) between 1 and 200),
  constraint audiences_channel_is_known check (channel in ('email', 'sms', 'voice', 'social', 'chat')),
  constraint audiences_status_is_known check (status in ('loading', 'ready')),
  constraint audiences_ready_has_a_time check ((status = 'ready') = (ready_at is not null)),
  constraint audiences_members_is_count check (members >= 0)
);

-- n counts from 1, without a gap. address is as addresses are compared (deed.fold_address);
-- null: it has none, or its contact was erased.
create table deed.audience_members (
  audience_id uuid   not null,
  n           bigint not null,
  tenant_id   uuid   not null,
  contact_id  uuid   not null,
  address     text,
  zone        text,
  data        jsonb  not null,
  constraint audience_members_pkey primary key (audience_id, n),
  constraint audience_members_contact_key unique (contact_id, audience_id),
  constraint audience_members_address_key unique (audience_id, address),
  constraint audience_members_counts_from_one check (n >= 1),
  constraint audience_members_texts_are_short check (length(zone) <= 64 and length(address) between 1 and 500),
  constraint audience_members_data_is_object check (jsonb_typeof(data) = 'object' and pg_column_size(data) <= 70000)
);
create index audience_members_tenant_idx on deed.audience_members (tenant_id);

-- A single execution of a campaign over one channel. Keys of deliveries hold run and
-- scheduled_for, which therefore never change.
create table deed.campaign_runs (
  id             uuid        not null,
  campaign_id    uuid        not null,
  tenant_id      uuid        not null,
  workspace_id   uuid        not null,
  audience_id    uuid        not null,
  content_id     uuid        not null,
  status         text        not null default 'queued',
  channel        text        not null,
  provider       text        not null,
  purpose        text        not null,
  request_id     text        not null,
  request_sha256 bytea       not null,
  members        bigint      not null,
  scheduled_for  timestamptz not null,
  expires_at     timestamptz not null,
  created_at     timestamptz not null,
  started_at     timestamptz,
  finished_at    timestamptz,
  options        jsonb       not null,
  constraint campaign_runs_pkey primary key (id),
  constraint campaign_runs_request_key unique (tenant_id, workspace_id, request_id, channel),
  constraint campaign_runs_campaign_fkey foreign key (campaign_id) references deed.campaigns (id),
  constraint campaign_runs_audience_fkey foreign key (audience_id) references deed.audiences (id),
  constraint campaign_runs_content_fkey foreign key (content_id) references deed.campaign_contents (id),
  constraint campaign_runs_status_is_known check (status in ('queued', 'running', 'completed', 'partial', 'failed')),
  constraint campaign_runs_end_is_whole check ((finished_at is null) = (status in ('queued', 'running'))),
  constraint campaign_runs_start_is_whole check ((started_at is null) = (status = 'queued')),
  constraint campaign_runs_channel_is_known check (channel in ('email', 'sms', 'voice', 'social', 'chat')),
  constraint campaign_runs_request_is_short check (octet_length(request_sha256) = 32 and length(request_id) between 1 and 200),
  constraint campaign_runs_has_members check (members > 0)
) with (fillfactor = 80);
create index campaign_runs_campaign_idx on deed.campaign_runs (campaign_id);
create index campaign_runs_open_idx on deed.campaign_runs (id) where finished_at is null;

-- Up to 1,000 members of a run's audience. What it is locked for is its expansion: once it
-- is expanded it holds no lease, since its items may take days (C5); process_after is when
-- it is looked at next. The counts are of its deliveries, and there when it has ended:
-- missed are those that were cancelled or expired.
create table deed.job_queue (
  id            uuid        not null,
  run_id        uuid        not null,
  tenant_id     uuid        not null,
  workspace_id  uuid        not null,
  job_type      text        not null,
  status        text        not null default 'queued',
  attempts      int         not null default 0,
  process_after timestamptz not null,
  from_n        bigint      not null,
  upto_n        bigint      not null,
  claim         bigint,
  claimed_by    text,
  lease_until   timestamptz,
  expanded_at   timestamptz,
  finished_at   timestamptz,
  created_at    timestamptz not null,
  sent          int,
  skipped       int,
  missed        int,
  failed        int,
  dead          int,
  last_error    text,
  constraint job_queue_pkey primary key (id),
  constraint job_queue_members_key unique (run_id, from_n),
  constraint job_queue_run_fkey foreign key (run_id) references deed.campaign_runs (id),
  constraint job_queue_type_is_known check (job_type in ('email_send_batch', 'voice_call_batch', 'social_post_batch', 'sms_send_batch', 'chat_send_batch')),
  constraint job_queue_status_is_known check (status in ('queued', 'locked', 'completed', 'failed', 'dead')),
  constraint job_queue_members_are_a_range check (from_n >= 1 and upto_n between from_n and from_n + 999),
  constraint job_queue_attempts_are_sane check (attempts >= 0),
  constraint job_queue_lease_is_whole check (num_nulls(claim, claimed_by, lease_until) in (0, 3) and (lease_until is not null) = (status = 'locked' and expanded_at is null)),
  constraint job_queue_end_is_whole check ((finished_at is null) = (status in ('queued', 'locked'))),
  constraint job_queue_counts_are_whole check (num_nulls(sent, skipped, missed, failed, dead) in (0, 5)),
  constraint job_queue_error_is_short check (length(last_error) <= 4000)
) with (fillfactor = 70);
create index job_queue_due_idx on deed.job_queue (process_after) where status = 'queued';
create index job_queue_lost_idx on deed.job_queue (lease_until) where status = 'locked' and expanded_at is null;
create index job_queue_open_idx on deed.job_queue (process_after) where status = 'locked' and expanded_at is not null;
create index job_queue_tenant_idx on deed.job_queue (tenant_id);

-- The changes of status that there are (C2); deed.check_campaign refuses all others, whoever
-- asks. Both begin as queued. A job whose expansion has failed passes through failed.
create table deed.campaign_transitions (
  kind        text not null,
  from_status text not null,
  to_status   text not null,
  meaning     text not null,
  constraint campaign_transitions_pkey primary key (kind, from_status, to_status),
  constraint campaign_transitions_kind_is_known check (kind in ('run', 'job'))
);
insert into deed.campaign_transitions (kind, from_status, to_status, meaning) values
  ('run', 'queued', 'running', 'the first of its jobs is locked'),
  ('run', 'running', 'completed', 'all of its jobs are completed, without a failure'),
  ('run', 'running', 'partial', 'some went out, and some did not'),
  ('run', 'running', 'failed', 'none of its jobs is completed'),
  ('job', 'queued', 'locked', 'its deliveries are being reserved'),
  ('job', 'locked', 'queued', 'taken back from who has stopped'),
  ('job', 'locked', 'completed', 'everything in it has ended, and something went out or nothing was to'),
  ('job', 'locked', 'failed', 'nothing went out, or its expansion failed'),
  ('job', 'failed', 'queued', 'its expansion is tried again'),
  ('job', 'failed', 'dead', 'its expansion failed five times or cannot succeed, or a delivery in it is dead and none went out');

do $$
declare
  v_table text;
begin
  foreach v_table in array array['campaigns', 'campaign_contents', 'audiences', 'audience_members', 'campaign_runs', 'job_queue', 'campaign_transitions'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
    if v_table <> 'campaign_transitions' then
      execute format('create policy %I on deed.%I for select to deed_app using (tenant_id = (select deed.current_tenant()))', v_table || '_app', v_table);
      execute format('grant select on deed.%I to deed_app', v_table);
    end if;
  end loop;
end
$$;

-- What happened to runs and their jobs, of the one log that there is (C6).
create view deed.campaign_audit_log with (security_invoker = true) as
select a.n, a.at, a.tenant_id, a.run_id, a.actor, a.login, a.action, a.subject_type, a.subject_id, a.from_status, a.to_status, a.reason, a.affected, a.details
from deed.audit_log a
where a.run_id is not null;
grant select on deed.campaign_audit_log to deed_app, deed_worker, deed_admin;
