-- breaking: no
-- The log: every message as it was published, append-only.
--
-- Partitioned by id because unique (slot, id) allows nothing else: partition n
-- holds the ids from n * 2^36, so that no burst overruns one. Partitions are
-- made by deed.keep_partitions, as plain tables that are then attached:
-- CREATE TABLE … PARTITION OF would wait for every idle publisher, and the
-- next publisher would stand behind it.

create sequence deed.log_seq as bigint cache 1 no cycle;
create sequence deed.claim_seq as bigint cache 1 no cycle;
create sequence deed.list_seq as bigint cache 1 no cycle;

-- A sequence that was never called answers NULL; called once here, so that
-- NULL always means an error.
select nextval('deed.log_seq'), nextval('deed.claim_seq'), nextval('deed.list_seq');

create table deed.log (
  id             bigint      not null,
  xid            xid8        not null,
  slot           int         not null,
  list_version   bigint      not null,
  tenant_id      uuid        not null,
  created_at     timestamptz not null,
  process_after  timestamptz,
  topic          text        not null,
  key            text,
  type           text,
  aggregate_type text,
  content_type   text        not null default 'application/json',
  headers        jsonb,
  payload        bytea       not null,
  constraint log_slot_id_key unique (slot, id)
) partition by range (id);

create index log_xid_idx on deed.log (xid);

create table deed.partitions (
  n         int         not null,
  from_id   bigint      not null,
  upto_id   bigint      not null,
  made_at   timestamptz not null default clock_timestamp(),
  opened_at timestamptz,
  constraint partitions_pkey primary key (n),
  constraint partitions_is_range check (from_id = n * 68719476736 and upto_id = from_id + 68719476736)
);

-- The windows of the log that readers have opened (see deed.open_window). Of the
-- rows up to restored_id some came from another cluster, with its transaction
-- ids; those from restored_h on are certainly not this cluster's.
create table deed.windows (
  n                 bigint      not null generated always as identity,
  base              bigint      not null,
  h                 xid8        not null,
  cur               pg_snapshot not null,
  upper             bigint      not null,
  system_identifier bigint      not null,
  restored_id       bigint      not null default 0,
  restored_h        xid8        not null default '0',
  opened_at         timestamptz not null default clock_timestamp(),
  constraint windows_pkey primary key (n),
  constraint windows_is_forward check (upper >= base)
);

-- The window before all others, in which nothing is visible.
insert into deed.windows (n, base, h, cur, upper, system_identifier) overriding system value
select 0, 0, '0', '1:1:', 0, c.system_identifier from pg_control_system() c;

-- What a publisher reads: one row a declared topic, with its subscriptions.
-- Topics that nobody declared share the slots from 0 and the subscription 0.
create table deed.topics (
  topic         text        not null,
  slot_base     int         not null,
  mode          text        not null default 'queue',
  lanes         int         not null default 4,
  ordered       boolean     not null default true,
  retention     interval    not null default interval '7 days',
  subscriptions int[]       not null default '{}',
  created_at    timestamptz not null default clock_timestamp(),
  constraint topics_pkey primary key (topic),
  constraint topics_slot_base_key unique (slot_base),
  constraint topics_slot_base_is_aligned check (slot_base > 0 and slot_base % 64 = 0),
  constraint topics_mode_is_known check (mode in ('queue', 'stream')),
  constraint topics_lanes_are_sane check (lanes between 1 and 64),
  constraint topics_retention_is_positive check (retention > interval '0'),
  constraint topics_name_is_valid check (topic ~ '^[A-Za-z0-9._:/-]{1,200}$')
);

create table deed.subscriptions (
  id           int         not null,
  topic        text        not null,
  name         text        not null,
  door         boolean     not null default false,
  max_attempts int,
  lease        interval    not null default interval '30 seconds',
  backoff      interval    not null default interval '1 second',
  start        text        not null,
  start_window bigint,
  list_version bigint      not null,
  -- Of a stream: the list version from which on its rows are read from the log,
  -- and the window where reading begins.
  since        bigint,
  since_window bigint,
  -- Of a queue that was a stream: the window up to which it was read as one, and
  -- from which list version on.
  read_window  bigint,
  read_since   bigint,
  created_at   timestamptz not null default clock_timestamp(),
  constraint subscriptions_pkey primary key (id),
  constraint subscriptions_topic_name_key unique (topic, name),
  constraint subscriptions_name_is_valid check (name ~ '^[A-Za-z0-9._-]{1,100}$'),
  constraint subscriptions_start_is_known check (start in ('beginning', 'now')),
  constraint subscriptions_max_attempts_is_positive check (max_attempts >= 1),
  constraint subscriptions_lease_is_sane check (lease between interval '1 second' and interval '24 hours'),
  constraint subscriptions_backoff_is_sane check (backoff between interval '1 millisecond' and interval '1 hour'),
  constraint subscriptions_stream_has_beginning check ((since is null) = (since_window is null))
);

-- Subscription 0 takes what is published to topics that nobody declared.
insert into deed.subscriptions (id, topic, name, door, max_attempts, start, list_version)
values (0, '', 'default', true, 20, 'beginning', 1);

-- How far a new subscription has been given the messages published before it.
create table deed.backfills (
  subscription int         not null,
  made_by      xid8        not null,
  window_n     bigint,
  slot         int         not null default -1,
  id           bigint      not null default 0,
  scanned      boolean     not null default false,
  seen         pg_snapshot,
  upto         pg_snapshot,
  late_id      bigint      not null default 0,
  finished_at  timestamptz,
  constraint backfills_pkey primary key (subscription)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['log', 'partitions', 'windows', 'topics', 'subscriptions', 'backfills'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;

create policy log_app on deed.log for select to deed_app
  using (tenant_id = (
    select coalesce(
      nullif(current_setting('app.current_tenant_id', true), '')::uuid,
      case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
    )
    from deed.settings s
  ));
grant select on deed.log to deed_app;

grant usage on sequence deed.log_seq, deed.claim_seq, deed.list_seq to deed_worker, deed_admin;
