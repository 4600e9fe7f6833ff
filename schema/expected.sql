-- The schema deed as installed, one object a line. Made by a test: go test ./schema -run Golden -update
table deed.audit_log rls=true forced=true
  column n bigint not null identity always
  column at timestamp with time zone not null default clock_timestamp()
  column tenant_id uuid
  column actor text not null
  column login text not null default SESSION_USER
  column action text not null
  column subject_type text not null
  column subject_id text
  column from_status text
  column to_status text
  column reason text
  column affected bigint not null default 1
  column details jsonb
  constraint audit_log_actor_is_named CHECK (((length(actor) >= 1) AND (length(actor) <= 200)))
  constraint audit_log_affected_is_count CHECK ((affected >= 0))
  constraint audit_log_pkey PRIMARY KEY (n)
  CREATE INDEX audit_log_subject_idx ON deed.audit_log USING btree (subject_type, subject_id, n)
  CREATE UNIQUE INDEX audit_log_pkey ON deed.audit_log USING btree (n)
  policy audit_log_admin for * to deed_admin using true check true
  policy audit_log_app for r to deed_app using (tenant_id = ( SELECT COALESCE((NULLIF(current_setting('app.current_tenant_id'::text, true), ''::text))::uuid, CASE WHEN s.single_tenant THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE NULL::uuid END) AS "coalesce" FROM deed.settings s))
  policy audit_log_owner for * to owner using true check true
  policy audit_log_worker for * to deed_worker using true check true
  CREATE TRIGGER audit_log_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON deed.audit_log FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant insert, select to deed_admin
  grant insert, select to deed_worker
  grant select to deed_app
table deed.backfills rls=true forced=true
  column subscription integer not null
  column made_by xid8 not null
  column window_n bigint
  column slot integer not null default '-1'::integer
  column id bigint not null default 0
  column scanned boolean not null default false
  column seen pg_snapshot
  column upto pg_snapshot
  column late_id bigint not null default 0
  column finished_at timestamp with time zone
  constraint backfills_pkey PRIMARY KEY (subscription)
  CREATE UNIQUE INDEX backfills_pkey ON deed.backfills USING btree (subscription)
  policy backfills_admin for r to deed_admin using true
  policy backfills_owner for * to owner using true check true
  policy backfills_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
sequence deed.claim_seq
  grant usage to deed_admin
  grant usage to deed_worker
table deed.kept rls=true forced=true
  column id bigint not null
  column xid xid8 not null
  column slot integer not null
  column list_version bigint not null
  column tenant_id uuid not null
  column created_at timestamp with time zone not null
  column process_after timestamp with time zone
  column topic text not null
  column key text
  column type text
  column aggregate_type text
  column content_type text not null default 'application/json'::text
  column headers jsonb
  column payload bytea not null
  constraint kept_pkey PRIMARY KEY (slot, id)
  CREATE UNIQUE INDEX kept_pkey ON deed.kept USING btree (slot, id)
  policy kept_admin for r to deed_admin using true
  policy kept_app for r to deed_app using (tenant_id = ( SELECT COALESCE((NULLIF(current_setting('app.current_tenant_id'::text, true), ''::text))::uuid, CASE WHEN s.single_tenant THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE NULL::uuid END) AS "coalesce" FROM deed.settings s))
  policy kept_owner for * to owner using true check true
  policy kept_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.lanes rls=true forced=true with fillfactor=50
  column subscription integer not null
  column lane integer not null
  column slot_from integer not null
  column slot_upto integer not null
  column fence bigint not null default 0
  column worker uuid
  column lease_until timestamp with time zone
  column taken_n bigint not null default 0
  column takeovers integer not null default 0
  column paused_at bigint
  constraint lanes_held_under_lease CHECK ((num_nulls(worker, lease_until) = ANY (ARRAY[0, 2])))
  constraint lanes_is_range CHECK ((slot_upto >= slot_from))
  constraint lanes_pkey PRIMARY KEY (subscription, lane)
  CREATE UNIQUE INDEX lanes_pkey ON deed.lanes USING btree (subscription, lane)
  policy lanes_admin for r to deed_admin using true
  policy lanes_owner for * to owner using true check true
  policy lanes_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
sequence deed.list_seq
  grant usage to deed_admin
  grant usage to deed_worker
sequence deed.log_seq
  grant usage to deed_admin
  grant usage to deed_worker
table deed.migrations rls=false forced=false
  column version integer not null
  column name text not null
  column breaking boolean not null
  column hash text not null
  column applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)
  CREATE UNIQUE INDEX migrations_pkey ON deed.migrations USING btree (version)
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.partitions rls=true forced=true
  column n integer not null
  column from_id bigint not null
  column upto_id bigint not null
  column made_at timestamp with time zone not null default clock_timestamp()
  column opened_at timestamp with time zone
  column moving pg_snapshot
  column moving_window bigint
  column read_window bigint
  column moved_subscription integer
  column moved_id bigint
  column moved_at timestamp with time zone
  column emptied_at timestamp with time zone
  column tried_at timestamp with time zone
  column dropped_at timestamp with time zone
  constraint partitions_is_range CHECK (((from_id = (n * '68719476736'::bigint)) AND (upto_id = (from_id + '68719476736'::bigint))))
  constraint partitions_pkey PRIMARY KEY (n)
  CREATE UNIQUE INDEX partitions_pkey ON deed.partitions USING btree (n)
  policy partitions_admin for r to deed_admin using true
  policy partitions_owner for * to owner using true check true
  policy partitions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.pending rls=true forced=true with autovacuum_vacuum_insert_scale_factor=0.2, autovacuum_vacuum_scale_factor=0.02, fillfactor=40
  column subscription integer not null
  column slot integer not null
  column id bigint not null
  column attempts integer not null default 0
  column lost_claims integer not null default 0
  column parked boolean not null default false
  column tenant_id uuid not null
  column ord_at timestamp with time zone not null
  column process_after timestamp with time zone
  column ord timestamp with time zone not null generated as COALESCE(process_after, ord_at)
  column claimed_at timestamp with time zone
  column lease_until timestamp with time zone
  column claim bigint
  column claimed_by text
  column dead_at timestamp with time zone
  column last_error text
  column key_hash bigint
  constraint pending_pkey PRIMARY KEY (subscription, id)
  CREATE INDEX pending_claim_idx ON deed.pending USING btree (subscription, ord, id) WHERE ((dead_at IS NULL) AND (NOT parked))
  CREATE INDEX pending_dead_idx ON deed.pending USING btree (subscription, id) WHERE (dead_at IS NOT NULL)
  CREATE INDEX pending_key_idx ON deed.pending USING btree (subscription, key_hash, id) WHERE (key_hash IS NOT NULL)
  CREATE INDEX pending_retry_idx ON deed.pending USING btree (subscription, attempts) WHERE ((attempts > 0) AND (dead_at IS NULL) AND (NOT parked))
  CREATE UNIQUE INDEX pending_pkey ON deed.pending USING btree (subscription, id)
  policy pending_admin for * to deed_admin using true check true
  policy pending_app for r to deed_app using (tenant_id = ( SELECT COALESCE((NULLIF(current_setting('app.current_tenant_id'::text, true), ''::text))::uuid, CASE WHEN s.single_tenant THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE NULL::uuid END) AS "coalesce" FROM deed.settings s))
  policy pending_owner for * to owner using true check true
  policy pending_worker for * to deed_worker using true check true
  grant delete, insert, select, update to deed_worker
  grant select to deed_app
  grant select, update to deed_admin
table deed.progress rls=true forced=true
  column subscription integer not null
  column lane integer not null
  column n bigint not null
  column fence bigint not null
  column from_window bigint not null
  column to_window bigint
  column slot integer not null default '-2'::integer
  column id bigint not null default 0
  column messages integer not null default 0
  column aside integer not null default 0
  column total bigint not null default 0
  column min_id bigint
  column max_id bigint
  column worker text
  column finished_at timestamp with time zone not null default clock_timestamp()
  constraint progress_pkey PRIMARY KEY (subscription, lane, n)
  CREATE UNIQUE INDEX progress_pkey ON deed.progress USING btree (subscription, lane, n)
  policy progress_admin for r to deed_admin using true
  policy progress_owner for * to owner using true check true
  policy progress_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.publish_keys rls=true forced=true
  column tenant_id uuid not null
  column topic text not null
  column key text not null
  column id bigint not null
  column created_at timestamp with time zone not null
  column used_at timestamp with time zone not null default clock_timestamp()
  constraint publish_keys_pkey PRIMARY KEY (tenant_id, topic, key)
  CREATE INDEX publish_keys_age_idx ON deed.publish_keys USING brin (used_at)
  CREATE UNIQUE INDEX publish_keys_pkey ON deed.publish_keys USING btree (tenant_id, topic, key)
  policy publish_keys_admin for * to deed_admin using true check true
  policy publish_keys_app for r to deed_app using (tenant_id = ( SELECT COALESCE((NULLIF(current_setting('app.current_tenant_id'::text, true), ''::text))::uuid, CASE WHEN s.single_tenant THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE NULL::uuid END) AS "coalesce" FROM deed.settings s))
  policy publish_keys_owner for * to owner using true check true
  policy publish_keys_worker for * to deed_worker using true check true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.receipts rls=true forced=true
  column n bigint not null identity always
  column subscription integer not null
  column lane integer
  column claim bigint not null
  column worker text not null
  column claimed_at timestamp with time zone
  column finished_at timestamp with time zone not null
  column min_id bigint
  column max_id bigint
  column ids bigint[] not null
  column attempts integer[]
  column finished integer not null
  column failed integer not null
  column lost integer not null
  constraint receipts_adds_up CHECK ((finished = cardinality(ids)))
  constraint receipts_counts_are_counts CHECK (((finished >= 0) AND (failed >= 0) AND (lost >= 0)))
  constraint receipts_pkey PRIMARY KEY (n)
  CREATE INDEX receipts_ids_idx ON deed.receipts USING gist (int8range(min_id, max_id, '[]'::text)) WHERE (finished > 0)
  CREATE INDEX receipts_lost_idx ON deed.receipts USING btree (finished_at) WHERE (finished = 0)
  CREATE UNIQUE INDEX receipts_pkey ON deed.receipts USING btree (n)
  policy receipts_admin for * to deed_admin using true check true
  policy receipts_owner for * to owner using true check true
  policy receipts_worker for * to deed_worker using true check true
  grant insert, select to deed_worker
  grant select to deed_admin
table deed.relanings rls=true forced=true
  column subscription integer not null
  column window_n bigint
  column lanes integer not null
  column mode text not null default 'stream'::text
  column asked_at timestamp with time zone not null default clock_timestamp()
  constraint relanings_pkey PRIMARY KEY (subscription)
  CREATE UNIQUE INDEX relanings_pkey ON deed.relanings USING btree (subscription)
  policy relanings_admin for r to deed_admin using true
  policy relanings_owner for * to owner using true check true
  policy relanings_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.relays rls=true forced=true with fillfactor=50
  column subscription integer not null
  column worker uuid not null
  column name text not null
  column seen_until timestamp with time zone not null
  constraint relays_pkey PRIMARY KEY (subscription, worker)
  CREATE UNIQUE INDEX relays_pkey ON deed.relays USING btree (subscription, worker)
  policy relays_admin for r to deed_admin using true
  policy relays_owner for * to owner using true check true
  policy relays_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.settings rls=true forced=true
  column is_only boolean not null default true
  column installation uuid not null default gen_random_uuid()
  column single_tenant boolean not null default true
  column strict_topics boolean not null default false
  column max_payload integer not null default 1048576
  column dedup_window interval not null default '7 days'::interval
  column list_version bigint not null default 1
  column installed_at timestamp with time zone not null default clock_timestamp()
  column retention interval not null default '7 days'::interval
  constraint settings_dedup_window_is_positive CHECK ((dedup_window > '00:00:00'::interval))
  constraint settings_is_one_row CHECK (is_only)
  constraint settings_max_payload_is_sane CHECK (((max_payload >= 1024) AND (max_payload <= 67108864)))
  constraint settings_pkey PRIMARY KEY (is_only)
  constraint settings_retention_is_positive CHECK ((retention > '00:00:00'::interval))
  CREATE UNIQUE INDEX settings_pkey ON deed.settings USING btree (is_only)
  policy settings_admin for * to deed_admin using true check true
  policy settings_app for r to deed_app using true
  policy settings_owner for * to owner using true check true
  policy settings_worker for r to deed_worker using true
  grant select to deed_app
  grant select to deed_worker
  grant select, update to deed_admin
table deed.subscriptions rls=true forced=true
  column id integer not null
  column topic text not null
  column name text not null
  column door boolean not null default false
  column max_attempts integer
  column lease interval not null default '00:00:30'::interval
  column backoff interval not null default '00:00:01'::interval
  column start text not null
  column start_window bigint
  column list_version bigint not null
  column since bigint
  column since_window bigint
  column read_window bigint
  column created_at timestamp with time zone not null default clock_timestamp()
  constraint subscriptions_backoff_is_sane CHECK (((backoff >= '00:00:00.001'::interval) AND (backoff <= '01:00:00'::interval)))
  constraint subscriptions_lease_is_sane CHECK (((lease >= '00:00:01'::interval) AND (lease <= '24:00:00'::interval)))
  constraint subscriptions_max_attempts_is_positive CHECK ((max_attempts >= 1))
  constraint subscriptions_name_is_valid CHECK ((name ~ '^[A-Za-z0-9._-]{1,100}$'::text))
  constraint subscriptions_pkey PRIMARY KEY (id)
  constraint subscriptions_start_is_known CHECK ((start = ANY (ARRAY['beginning'::text, 'now'::text])))
  constraint subscriptions_stream_has_beginning CHECK (((since IS NULL) = (since_window IS NULL)))
  constraint subscriptions_topic_name_key UNIQUE (topic, name)
  CREATE UNIQUE INDEX subscriptions_pkey ON deed.subscriptions USING btree (id)
  CREATE UNIQUE INDEX subscriptions_topic_name_key ON deed.subscriptions USING btree (topic, name)
  policy subscriptions_admin for r to deed_admin using true
  policy subscriptions_owner for * to owner using true check true
  policy subscriptions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.tenants rls=true forced=true
  column tenant_id uuid not null
  column name text not null
  column created_at timestamp with time zone not null default clock_timestamp()
  constraint tenants_name_is_short CHECK (((length(name) >= 1) AND (length(name) <= 200)))
  constraint tenants_name_is_unique UNIQUE (name)
  constraint tenants_pkey PRIMARY KEY (tenant_id)
  CREATE UNIQUE INDEX tenants_name_is_unique ON deed.tenants USING btree (name)
  CREATE UNIQUE INDEX tenants_pkey ON deed.tenants USING btree (tenant_id)
  policy tenants_admin for * to deed_admin using true check true
  policy tenants_app for r to deed_app using (tenant_id = ( SELECT COALESCE((NULLIF(current_setting('app.current_tenant_id'::text, true), ''::text))::uuid, CASE WHEN s.single_tenant THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE NULL::uuid END) AS "coalesce" FROM deed.settings s))
  policy tenants_owner for * to owner using true check true
  policy tenants_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.topics rls=true forced=true
  column topic text not null
  column slot_base integer not null
  column mode text not null default 'queue'::text
  column lanes integer not null default 4
  column ordered boolean not null default true
  column retention interval not null default '7 days'::interval
  column subscriptions integer[] not null default '{}'::integer[]
  column created_at timestamp with time zone not null default clock_timestamp()
  constraint topics_lanes_are_sane CHECK (((lanes >= 1) AND (lanes <= 64)))
  constraint topics_mode_is_known CHECK ((mode = ANY (ARRAY['queue'::text, 'stream'::text])))
  constraint topics_name_is_valid CHECK ((topic ~ '^[A-Za-z0-9._:/-]{1,200}$'::text))
  constraint topics_pkey PRIMARY KEY (topic)
  constraint topics_retention_is_positive CHECK ((retention > '00:00:00'::interval))
  constraint topics_slot_base_is_aligned CHECK (((slot_base > 0) AND ((slot_base % 64) = 0)))
  constraint topics_slot_base_key UNIQUE (slot_base)
  CREATE UNIQUE INDEX topics_pkey ON deed.topics USING btree (topic)
  CREATE UNIQUE INDEX topics_slot_base_key ON deed.topics USING btree (slot_base)
  policy topics_admin for r to deed_admin using true
  policy topics_owner for * to owner using true check true
  policy topics_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.windows rls=true forced=true
  column n bigint not null identity always
  column base bigint not null
  column h xid8 not null
  column cur pg_snapshot not null
  column upper bigint not null
  column system_identifier bigint not null
  column restored_id bigint not null default 0
  column restored_h xid8 not null default '0'::xid8
  column opened_at timestamp with time zone not null default clock_timestamp()
  constraint windows_is_forward CHECK ((upper >= base))
  constraint windows_pkey PRIMARY KEY (n)
  CREATE UNIQUE INDEX windows_pkey ON deed.windows USING btree (n)
  policy windows_admin for r to deed_admin using true
  policy windows_owner for * to owner using true check true
  policy windows_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
function add_tenant(p_tenant uuid, p_name text) returns void security definer set search_path=pg_catalog, pg_temp body 1138ca77f0bc47a7975b685aca3a2d12 grant to deed_admin
function attend(p_subscription integer, p_worker text, p_limit integer, p_slots_from integer[], p_slots_upto integer[], p_lease interval, p_run integer DEFAULT 100) returns TABLE(head bigint, key_hash bigint, id bigint, claim bigint, attempts integer, lost_claims integer, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body b503eb1e63944bbf6f2d31b404036f3b grant to deed_worker
function backfill(p_subscription integer, p_limit integer DEFAULT 1000) returns TABLE(added integer, finished boolean) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 6b7db0ec057f55c8e2e328823aad501f grant to deed_worker
function begin_moving(p_n integer, p_snap pg_snapshot) returns void set search_path=pg_catalog, pg_temp body 6dde15a3df2b100c996c5eedb57552e2
function blocked_keys(p_topic text DEFAULT NULL::text, p_limit integer DEFAULT 100) returns TABLE(topic text, subscription text, key text, tenant_id uuid, id bigint, message_id uuid, attempts integer, dead boolean, due timestamp with time zone, last_error text, since timestamp with time zone, behind bigint) set search_path=pg_catalog, pg_temp, jit=off body f41f7dfec021852a6c0d2806739f323b grant to deed_admin, deed_worker
function check_topic(p_topic text, p_mode text, p_lanes integer, p_retention interval) returns void set search_path=pg_catalog, pg_temp body 2b97238064e789959c41a8ceb631ff60 grant to deed_admin, deed_worker
function claim(p_topic text, p_worker text, p_limit integer DEFAULT 100, p_subscription text DEFAULT 'default'::text, p_tenant uuid DEFAULT NULL::uuid, p_lease interval DEFAULT NULL::interval, p_floor timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) returns TABLE(subscription integer, id bigint, message_id uuid, claim bigint, attempts integer, lost_claims integer, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone, ord timestamp with time zone) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off body f035439a10fa62852c5224638e38a822 grant to deed_worker
function declare_topic(p_topic text, p_mode text DEFAULT NULL::text, p_lanes integer DEFAULT NULL::integer, p_ordered boolean DEFAULT NULL::boolean, p_retention interval DEFAULT NULL::interval) returns TABLE(made boolean, mode text, lanes integer, ordered boolean, retention interval) security definer set search_path=pg_catalog, pg_temp body 38e066d1b389a936dcbb379ccc534f81 grant to deed_admin, deed_worker
function drop_partition(p_n integer) returns text set search_path=pg_catalog, pg_temp, lock_timeout=20ms body a8d40904f52d4528e86c49e8fcfe8a9f
function end_stream(p_topic text) returns void security definer set search_path=pg_catalog, pg_temp body 7b8b4c7c8812553a59212310dca72c66
function extend(p_subscription integer, p_claim bigint, p_ids bigint[], p_lease interval DEFAULT NULL::interval) returns bigint[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 08a200f9a2c7ae5c595359601a4168c0 grant to deed_worker
function fail(p_subscription integer, p_claim bigint, p_ids bigint[], p_errors text[], p_after interval[] DEFAULT NULL::interval[], p_outcomes text[] DEFAULT NULL::text[]) returns TABLE(id bigint, attempts integer, dead boolean, process_after timestamp with time zone) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body bfc27e627b2e695fdf3810685047f25a grant to deed_worker
function finish(p_subscription integer, p_claim bigint, p_ids bigint[], p_failed integer DEFAULT 0) returns integer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body ed8049017d793d7a5c415bcc9feec35c grant to deed_worker
function finish_page(p_subscription integer, p_lane integer, p_fence bigint, p_n bigint, p_from bigint, p_from_h xid8, p_to bigint, p_to_h xid8, p_slot integer, p_id bigint, p_messages integer, p_min bigint, p_max bigint, p_worker text, p_ids bigint[] DEFAULT NULL::bigint[], p_slots integer[] DEFAULT NULL::integer[], p_hashes bigint[] DEFAULT NULL::bigint[], p_errors text[] DEFAULT NULL::text[], p_after interval[] DEFAULT NULL::interval[], p_outcomes text[] DEFAULT NULL::text[], OUT n bigint, OUT dead boolean[]) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2ff689a9fc586bd53407883545c74062 grant to deed_worker
function is_bad_header(p_name text, p_value jsonb) returns boolean body inline grant to deed_admin, deed_app, deed_worker
function is_json(p_content_type text) returns boolean body inline grant to deed_admin, deed_app, deed_worker
function keep_partitions(p_ahead integer DEFAULT 2) returns integer security definer set search_path=pg_catalog, pg_temp, lock_timeout=2s body 0c956cabf6adffc69eeaf1b8cdaca453 grant to deed_worker
function keepers(p_n integer) returns TABLE(what text, subscription integer, lane integer, until timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body fceb72c5add98708d958df8a774ebdcf
function lag(p_subscriptions integer[], p_most integer DEFAULT 10000) returns TABLE(subscription integer, behind bigint, oldest timestamp with time zone) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body a429e05c980c88494f7f3c62e68ff556 grant to deed_admin, deed_worker
function leave_relays(p_worker uuid) returns void security definer set search_path=pg_catalog, pg_temp body 0ff30d2ba7f05e99fd64d8799831c612 grant to deed_worker
function make_lanes(p_subscription integer) returns void security definer set search_path=pg_catalog, pg_temp body 24c6cb7df519429557c97b75713974a4
function message_id(p_created_at timestamp with time zone, p_id bigint) returns uuid body inline grant to deed_admin, deed_app, deed_worker
function message_seq(p_message_id uuid) returns bigint body inline grant to deed_admin, deed_app, deed_worker
function next_due(p_subscription integer) returns double precision set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body d322135673b3d14221d0915565808f1e grant to deed_worker
function open_window() returns bigint security definer set search_path=pg_catalog, pg_temp body 588dba1ab8472d37dcac043692866f6f grant to deed_worker
function page(p_subscription integer, p_slot_from integer, p_slot_upto integer, p_from bigint, p_from_h xid8, p_to bigint, p_to_h xid8, p_slot integer, p_id bigint, p_limit integer, p_low bigint DEFAULT NULL::bigint, p_late xid8[] DEFAULT NULL::xid8[]) returns TABLE(place_slot integer, slot integer, id bigint, tenant_id uuid, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone, due boolean) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body bb285ae0e438aa09b549d91bd365885b grant to deed_worker
function pause_lane(p_subscription integer, p_lane integer, p_fence bigint) returns boolean security definer set search_path=pg_catalog, pg_temp body b08d385ecf7e733bbca9e3603dc220c8 grant to deed_worker
function publish(p_topic text, p_payload jsonb, p_key text DEFAULT NULL::text, p_type text DEFAULT NULL::text, p_headers jsonb DEFAULT NULL::jsonb, p_tenant uuid DEFAULT NULL::uuid, p_idempotency_key text DEFAULT NULL::text, p_process_after timestamp with time zone DEFAULT NULL::timestamp with time zone) returns bigint set search_path=pg_catalog, pg_temp body 4a5863fb57d87a4495d23f407c2529c8 grant to deed_admin, deed_app, deed_worker
function publish_many(p_topics text[], p_payloads bytea[], p_keys text[] DEFAULT NULL::text[], p_types text[] DEFAULT NULL::text[], p_content_types text[] DEFAULT NULL::text[], p_headers jsonb[] DEFAULT NULL::jsonb[], p_tenants uuid[] DEFAULT NULL::uuid[], p_idempotency_keys text[] DEFAULT NULL::text[], p_process_after timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_created_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_aggregate_types text[] DEFAULT NULL::text[], p_raise boolean DEFAULT true) returns TABLE(ordinal integer, id bigint, message_id uuid, repeated boolean, code text, problem text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan body 87b11f21fa4437b8a13f5c2b2e19374c grant to deed_admin, deed_app, deed_worker
function publish_one(p_topic text, p_payload bytea, p_key text DEFAULT NULL::text, p_type text DEFAULT NULL::text, p_content_type text DEFAULT NULL::text, p_headers jsonb DEFAULT NULL::jsonb, p_tenant uuid DEFAULT NULL::uuid, p_idempotency_key text DEFAULT NULL::text, p_process_after timestamp with time zone DEFAULT NULL::timestamp with time zone, p_raise boolean DEFAULT true, OUT id bigint, OUT message_id uuid, OUT repeated boolean, OUT code text, OUT problem text) returns record security definer set search_path=pg_catalog, pg_temp body 186daf91a8b0e42d37cd26b1cde37056 grant to deed_admin, deed_app, deed_worker
function publish_problems(p_topics text[], p_payloads bytea[], p_keys text[], p_types text[], p_content_types text[], p_headers jsonb[], p_idempotency_keys text[]) returns TABLE(ordinal integer, code text, problem text) set search_path=pg_catalog, pg_temp body 4e66c34d65190cb3173790b6dd4e2923 grant to deed_admin, deed_app, deed_worker
function purge_history(p_limit integer DEFAULT 5000) returns TABLE(what text, removed integer) security definer set search_path=pg_catalog, pg_temp, lock_timeout=50ms, enable_seqscan=off, jit=off body 70ac8f9f7026ace24b90648cb727ff9b grant to deed_admin, deed_worker
function purge_kept(p_slot integer, p_id bigint, p_limit integer DEFAULT 5000, OUT removed integer, OUT next_slot integer, OUT next_id bigint) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body f1fa7aef10bcc9e8b3e559b5adc8a547 grant to deed_admin, deed_worker
function purge_keys(p_limit integer DEFAULT 5000) returns integer security definer set search_path=pg_catalog, pg_temp body f98008ad1c1d01a6b12e00e5f45ffb24 grant to deed_worker
function redrive(p_topic text, p_subscription text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_ids bigint[] DEFAULT NULL::bigint[], p_limit integer DEFAULT NULL::integer, p_dry_run boolean DEFAULT false) returns bigint set search_path=pg_catalog, pg_temp body 0619979524fb9e3d168f2b0488fa5eee grant to deed_admin
function refuse_change() returns trigger set search_path=pg_catalog, pg_temp body e43778f286ebf8873e3985a858e95486
function release_keys(p_subscription integer, p_hashes bigint[]) returns bigint[] security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 60d01b747e7b97a044f448d9bd83202e grant to deed_worker
function release_lane(p_subscription integer, p_lane integer, p_fence bigint) returns boolean security definer set search_path=pg_catalog, pg_temp body 260022e00e57c3b43df70a4dae7e90ca grant to deed_worker
function retention() returns TABLE(n integer, from_id bigint, upto_id bigint, state text, opened_at timestamp with time zone, closed_at timestamp with time zone, bytes bigint, unfinished bigint, overdue interval, kept_by text[], tried_at timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2f7657ecc0ea6050075b9dd8af37c032 grant to deed_admin, deed_worker
function retention_step(p_limit integer DEFAULT 1000) returns TABLE(n integer, did text, messages bigint) security definer set search_path=pg_catalog, pg_temp, lock_timeout=50ms, jit=off body 2f358b35c80a90a88a2b5f0362540ad8 grant to deed_admin, deed_worker
function set_subscription(p_topic text, p_name text, p_max_attempts integer DEFAULT NULL::integer, p_lease interval DEFAULT NULL::interval, p_backoff interval DEFAULT NULL::interval) returns void security definer set search_path=pg_catalog, pg_temp body 91e56d943595019235e7e4fc9fdeb682 grant to deed_admin
function set_topic(p_topic text, p_mode text DEFAULT NULL::text, p_lanes integer DEFAULT NULL::integer, p_ordered boolean DEFAULT NULL::boolean, p_retention interval DEFAULT NULL::interval) returns void security definer set search_path=pg_catalog, pg_temp body 0e67795b76be9df9981491637fc2042b grant to deed_admin
function slot(p_base integer, p_key text, p_id bigint) returns integer body inline grant to deed_admin, deed_app, deed_worker
function status() returns TABLE(topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint, oldest_due_seconds double precision) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body 3863d5740e170e0e3928dec0e074585b grant to deed_admin, deed_worker
function subscribe(p_topic text, p_name text, p_from text DEFAULT NULL::text, p_max_attempts integer DEFAULT NULL::integer, p_lease interval DEFAULT NULL::interval) returns TABLE(subscription integer, made boolean, max_attempts integer, lease interval, start text, mode text) security definer set search_path=pg_catalog, pg_temp body 685081e70132d67af5a455c0f73b0651 grant to deed_admin, deed_worker
function take_lanes(p_worker uuid, p_name text, p_subscriptions integer[], p_take boolean DEFAULT true) returns TABLE(subscription integer, lane integer, slot_from integer, slot_upto integer, ordered boolean, fence bigint, give_back boolean, takeovers integer, last_window bigint) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off body 514173017ee780016ae9c754054e9789 grant to deed_worker
function unfinished(p_subscriptions integer[], p_horizon interval) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body ec42ff4e46ad408967e54f9c20f3447a grant to deed_worker
function unseen(p_from bigint, p_upto bigint, p_slot_from integer, p_slot_upto integer, p_since bigint, p_cur pg_snapshot, p_restored_id bigint DEFAULT 0, p_restored_h xid8 DEFAULT '0'::xid8) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body b5e687669df10973695fcfe157e9a8b6
function verify() returns TABLE(invariant text, subscription text, message_id bigint, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body c3143e52b160f5bc124a7cfd8b167f8b grant to deed_admin, deed_worker
function watch(p_seq bigint, p_subscriptions integer[], p_floors timestamp with time zone[], p_window bigint DEFAULT NULL::bigint, p_window_h xid8 DEFAULT NULL::xid8) returns TABLE(seq bigint, ready integer[], window_n bigint, window_h xid8, slots integer[], low bigint, late xid8[]) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body cd504b644c1804dca3affeb9ad3e86c9 grant to deed_worker
function window_late(p_from bigint, p_from_h xid8, p_to bigint, p_to_h xid8, OUT xids xid8[], OUT low bigint) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 304f903e9d8f6a7125063bed1356d3d0 grant to deed_worker
