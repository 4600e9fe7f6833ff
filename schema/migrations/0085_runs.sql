-- breaking: no
-- Runs of workflow plans (R1 to R8, R12, R13): a log of events that is the truth, and what
-- is computed from it.

-- One run: a guard, which whoever appends events locks, and where its events have brought
-- it. run_id is a UUIDv7 of the database's clock, which chooses the partition of run_log.
-- No index but these: every change but one of status is HOT.
create table deed.runs (
  run_id          uuid        not null,
  tenant_id       uuid        not null,
  plan_sha256     bytea,
  input_sha256    bytea       not null,
  created_at      timestamptz not null,
  started_at      timestamptz,
  finished_at     timestamptz,
  redacted_at     timestamptz,
  original_run_id uuid,
  parent_run_id   uuid,
  differing       int         not null default 0, -- repeats of events whose data were others
  project         text        not null,
  environment     text        not null,
  plan_id         text        not null,
  plan_version    text        not null,
  engine          text        not null,
  status          text        not null,
  parent_step_id  text,
  engine_run_ref  jsonb,
  input           jsonb,
  constraint runs_pkey primary key (run_id),
  constraint runs_tenant_fkey foreign key (tenant_id) references deed.tenants (tenant_id),
  constraint runs_status_is_known check (status in ('PENDING', 'APPROVED', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED')),
  constraint runs_final_has_a_time check ((status in ('COMPLETED', 'FAILED', 'CANCELLED')) = (finished_at is not null)),
  constraint runs_input_is_bounded check (jsonb_typeof(input) = 'object' and octet_length(input::text) <= 65536),
  constraint runs_hashes_are_sha256 check (octet_length(plan_sha256) = 32 and octet_length(input_sha256) = 32),
  constraint runs_names_are_short check (
    -- Not by "between": what a dump says of that is another expression when it is read again.
    length(project) >= 1 and length(project) <= 200 and length(environment) >= 1 and length(environment) <= 200
    and length(plan_id) >= 1 and length(plan_id) <= 200 and length(plan_version) >= 1 and length(plan_version) <= 200
    and length(parent_step_id) >= 1 and length(parent_step_id) <= 200 and engine ~ '^[a-z][a-z0-9_-]{0,62}$'
  ),
  constraint runs_parent_is_whole check ((parent_run_id is null) = (parent_step_id is null)),
  constraint runs_emptied_when_redacted check ((input is null) = (redacted_at is not null))
) with (fillfactor = 80);
create index runs_tenant_idx on deed.runs (tenant_id, run_id);
create index runs_living_idx on deed.runs (run_id) where status in ('PENDING', 'APPROVED', 'RUNNING', 'PAUSED');
create index runs_failed_idx on deed.runs (run_id) where status in ('FAILED', 'CANCELLED');

-- Which run a request has made (R12): request_key is deed.idempotency_key of tenant,
-- project, environment, plan, its version and the request's id. As long as the run.
create table deed.run_requests (
  request_key bytea not null,
  run_id      uuid  not null,
  tenant_id   uuid  not null,
  constraint run_requests_pkey primary key (request_key),
  constraint run_requests_run_key unique (run_id),
  constraint run_requests_key_is_sha256 check (octet_length(request_key) = 32)
);

-- What has happened in runs, append-only: partitions of a week of run_id each, made ahead by
-- deed.keep_run_partitions. run_seq counts from 1 without a gap, in the order of commits
-- (R2). A step's attempt has one end (R5).
create table deed.run_log (
  run_id              uuid        not null,
  tenant_id           uuid        not null,
  run_seq             bigint      not null,
  emitted_at          timestamptz not null,
  persisted_at        timestamptz not null,
  logical_attempt     int         not null,
  engine_attempt      int,
  event_type          text        not null,
  step_id             text,
  idempotency_key     bytea       not null,
  adapter_version     text,
  engine_run_ref      jsonb,
  caused_by_signal_id uuid,
  parent_event_id     uuid,
  event_data          jsonb       not null,
  redacted_sha256     bytea, -- of what event_data was before it was emptied
  constraint run_log_pkey primary key (run_id, run_seq),
  constraint run_log_once unique (run_id, idempotency_key),
  constraint run_log_counts_from_one check (run_seq >= 1 and logical_attempt >= 1 and engine_attempt >= 1),
  constraint run_log_key_is_sha256 check (octet_length(idempotency_key) = 32),
  constraint run_log_step_of_steps check ((step_id is not null) = (left(event_type, 4) = 'Step')),
  constraint run_log_names_are_short check (step_id <> 'RUN' and length(step_id) between 1 and 200 and length(adapter_version) <= 40),
  constraint run_log_data_are_bounded check (jsonb_typeof(event_data) = 'object' and (pg_column_size(event_data) <= 10000 or octet_length(event_data::text) <= 65536))
) partition by range (run_id);
create index run_log_type_idx on deed.run_log (event_type, persisted_at);
create unique index run_log_ends_idx on deed.run_log (run_id, step_id, logical_attempt) where event_type in ('StepCompleted', 'StepFailed', 'StepSkipped');

-- The partitions of run_log; n is the week since 1970, by its run ids' time.
create table deed.run_partitions (
  n          int         not null,
  from_id    uuid        not null,
  upto_id    uuid        not null,
  made_at    timestamptz not null default clock_timestamp(),
  dropped_at timestamptz,
  constraint run_partitions_pkey primary key (n),
  constraint run_partitions_is_range check (from_id < upto_id)
);

-- Which event is allowed when, and what a run is after it (R4). PENDING is a run that
-- nothing has happened to.
create table deed.run_transitions (
  event_type  text not null,
  from_status text not null,
  to_status   text not null,
  constraint run_transitions_pkey primary key (event_type, from_status)
);
insert into deed.run_transitions (event_type, from_status, to_status) values
  ('RunApproved', 'PENDING', 'APPROVED'),
  ('RunStarted', 'APPROVED', 'RUNNING'),
  ('RunPaused', 'RUNNING', 'PAUSED'),
  ('RunResumed', 'PAUSED', 'RUNNING'),
  ('RunCompleted', 'RUNNING', 'COMPLETED');
insert into deed.run_transitions (event_type, from_status, to_status)
select e.type, s.status, e.becomes
from (values ('RunFailed', 'FAILED'), ('RunCancelled', 'CANCELLED')) e(type, becomes)
cross join unnest(array['PENDING', 'APPROVED', 'RUNNING', 'PAUSED']) s(status);
insert into deed.run_transitions (event_type, from_status, to_status)
select e.type, s.status, s.status
from unnest(array['StepStarted', 'StepCompleted', 'StepFailed', 'StepSkipped']) e(type)
cross join unnest(array['RUNNING', 'PAUSED']) s(status);
insert into deed.run_transitions (event_type, from_status, to_status)
select e.type, s.status, s.status
from unnest(array['SignalAccepted', 'SignalRejected']) e(type)
cross join unnest(array['PENDING', 'APPROVED', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED']) s(status);

-- What a run was after an event: computed from the log and from nothing else (R6). The
-- newest of a run, and some of before (deed.store_snapshots).
create table deed.run_snapshots (
  run_id         uuid        not null,
  tenant_id      uuid        not null,
  last_event_seq bigint      not null,
  projected_at   timestamptz not null,
  snapshot       jsonb       not null,
  constraint run_snapshots_pkey primary key (run_id, last_event_seq)
);

-- Runs whose events are damaged: the projector waits for expected_seq and found got_seq;
-- null: the log ends before what had been projected (R7).
create table deed.run_stale (
  run_id       uuid        not null,
  tenant_id    uuid        not null,
  since        timestamptz not null,
  expected_seq bigint      not null,
  got_seq      bigint,
  constraint run_stale_pkey primary key (run_id)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['runs', 'run_requests', 'run_log', 'run_partitions', 'run_transitions', 'run_snapshots', 'run_stale'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
    if v_table in ('runs', 'run_requests', 'run_log', 'run_snapshots', 'run_stale') then
      execute format('create policy %I on deed.%I for select to deed_app using (tenant_id = (select deed.current_tenant()))', v_table || '_app', v_table);
      execute format('grant select on deed.%I to deed_app', v_table);
    end if;
  end loop;
end
$$;

-- The identity of an event. Not a column: a global unique key is impossible on partitions,
-- and of a run and a number there is one event.
create function deed.run_event_id(
  p_run uuid,
  p_seq bigint
) returns uuid
language sql
immutable strict parallel safe
return overlay(overlay(encode(substr(sha256(uuid_send(p_run) || int8send(p_seq)), 1, 16), 'hex') placing '8' from 13 for 1) placing 'a' from 17 for 1)::uuid;

-- The log under the names and types of seed 001; times are UTC. run_id is for looks at one
-- run: only it is in an index.
create view deed.run_events with (security_invoker = true) as
select l.run_id::varchar(255) as runid,
  l.run_seq as runseq,
  deed.run_event_id(l.run_id, l.run_seq) as eventid,
  l.step_id::varchar(255) as stepid,
  l.engine_attempt::varchar(255) as engineattemptid,
  l.logical_attempt::varchar(255) as logicalattemptid,
  l.event_type::varchar(64) as eventtype,
  l.event_data as eventdata,
  encode(l.idempotency_key, 'hex')::char(64) as idempotencykey,
  l.emitted_at at time zone 'UTC' as emittedat,
  l.persisted_at at time zone 'UTC' as persistedat,
  l.adapter_version::varchar(40) as adapterversion,
  l.engine_run_ref as enginerunref,
  l.caused_by_signal_id as causedbysignalid,
  l.parent_event_id as parenteventid,
  l.run_id,
  l.tenant_id
from deed.run_log l;
grant select on deed.run_events to deed_app, deed_worker, deed_admin;

-- Every event reaches the bus in its own transaction (R13).
insert into deed.topics (topic, slot_base, mode, list_version, own)
select 'deed.run_events', 64 * nextval('deed.topic_seq')::int, 'stream', s.list_version, true
from deed.settings s
on conflict (topic) do nothing;
