-- The schema deed as installed, one object a line. Made by a test: go test ./schema -run Golden -update
schema deed
  grant usage to deed_admin
  grant usage to deed_app
  grant usage to deed_worker
table deed.attended rls=true forced=true with fillfactor=50
  column subscription integer not null
  column asked_at timestamp with time zone not null
  constraint attended_pkey PRIMARY KEY (subscription)
  CREATE UNIQUE INDEX attended_pkey ON deed.attended USING btree (subscription)
  policy attended_admin for r to deed_admin using true
  policy attended_owner for * to owner using true check true
  policy attended_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.audience_members rls=true forced=true
  column audience_id uuid not null
  column n bigint not null
  column tenant_id uuid not null
  column contact_id uuid not null
  column address text
  column zone text
  column data jsonb not null
  constraint audience_members_address_key UNIQUE (audience_id, address)
  constraint audience_members_contact_key UNIQUE (contact_id, audience_id)
  constraint audience_members_counts_from_one CHECK ((n >= 1))
  constraint audience_members_data_is_object CHECK (((jsonb_typeof(data) = 'object'::text) AND (pg_column_size(data) <= 70000)))
  constraint audience_members_pkey PRIMARY KEY (audience_id, n)
  constraint audience_members_texts_are_short CHECK (((length(zone) <= 64) AND ((length(address) >= 1) AND (length(address) <= 500))))
  CREATE INDEX audience_members_tenant_idx ON deed.audience_members USING btree (tenant_id)
  CREATE UNIQUE INDEX audience_members_address_key ON deed.audience_members USING btree (audience_id, address)
  CREATE UNIQUE INDEX audience_members_contact_key ON deed.audience_members USING btree (contact_id, audience_id)
  CREATE UNIQUE INDEX audience_members_pkey ON deed.audience_members USING btree (audience_id, n)
  policy audience_members_admin for r to deed_admin using true
  policy audience_members_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy audience_members_owner for * to owner using true check true
  policy audience_members_worker for r to deed_worker using true
  CREATE TRIGGER audience_members_delete BEFORE DELETE ON deed.audience_members FOR EACH ROW EXECUTE FUNCTION deed.refuse_campaign_change()
  CREATE TRIGGER audience_members_ready AFTER INSERT ON deed.audience_members REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_members()
  CREATE TRIGGER audience_members_rewrite BEFORE UPDATE ON deed.audience_members FOR EACH ROW WHEN (((old.audience_id <> new.audience_id) OR (old.n <> new.n) OR (old.tenant_id <> new.tenant_id) OR (old.contact_id <> new.contact_id) OR (new.address IS NOT NULL) OR (new.zone IS NOT NULL) OR (new.data <> '{}'::jsonb))) EXECUTE FUNCTION deed.refuse_campaign_change()
  CREATE TRIGGER audience_members_truncate BEFORE TRUNCATE ON deed.audience_members FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.audiences rls=true forced=true
  column id uuid not null
  column tenant_id uuid not null
  column workspace_id uuid not null
  column name text not null
  column channel text not null
  column status text not null default 'loading'::text
  column members bigint not null default 0
  column created_at timestamp with time zone not null
  column ready_at timestamp with time zone
  column rows_read bigint not null default 0
  column left_out bigint not null default 0
  constraint audiences_channel_is_known CHECK ((channel = ANY (ARRAY['email'::text, 'sms'::text, 'voice'::text, 'social'::text, 'chat'::text])))
  constraint audiences_members_is_count CHECK ((members >= 0))
  constraint audiences_name_is_short CHECK (((length(name) >= 1) AND (length(name) <= 200)))
  constraint audiences_name_key UNIQUE (tenant_id, workspace_id, name)
  constraint audiences_pkey PRIMARY KEY (id)
  constraint audiences_ready_has_a_time CHECK (((status = 'ready'::text) = (ready_at IS NOT NULL)))
  constraint audiences_rows_are_counts CHECK (((left_out >= 0) AND (left_out <= rows_read)))
  constraint audiences_status_is_known CHECK ((status = ANY (ARRAY['loading'::text, 'ready'::text, 'removing'::text])))
  constraint audiences_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE UNIQUE INDEX audiences_name_key ON deed.audiences USING btree (tenant_id, workspace_id, name)
  CREATE UNIQUE INDEX audiences_pkey ON deed.audiences USING btree (id)
  policy audiences_admin for r to deed_admin using true
  policy audiences_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy audiences_owner for * to owner using true check true
  policy audiences_worker for r to deed_worker using true
  CREATE TRIGGER audiences_delete BEFORE DELETE ON deed.audiences FOR EACH ROW EXECUTE FUNCTION deed.refuse_campaign_change()
  CREATE TRIGGER audiences_rewrite BEFORE UPDATE ON deed.audiences FOR EACH ROW WHEN (((old.status = ANY (ARRAY['ready'::text, 'removing'::text])) OR (old.id <> new.id) OR (old.tenant_id <> new.tenant_id) OR (old.workspace_id <> new.workspace_id) OR (old.name <> new.name) OR (old.channel <> new.channel) OR (old.created_at <> new.created_at) OR (new.members < old.members))) EXECUTE FUNCTION deed.refuse_campaign_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.audit_blinds rls=true forced=true
  column n bigint not null
  column part text not null
  column salt bytea
  column sha256 bytea not null
  constraint audit_blinds_are_whole CHECK (((octet_length(salt) = 16) AND (octet_length(sha256) = 32)))
  constraint audit_blinds_part_is_known CHECK ((part = ANY (ARRAY['reason'::text, 'subject'::text, 'details'::text])))
  constraint audit_blinds_pkey PRIMARY KEY (n, part)
  CREATE UNIQUE INDEX audit_blinds_pkey ON deed.audit_blinds USING btree (n, part)
  policy audit_blinds_admin for r to deed_admin using true
  policy audit_blinds_owner for * to owner using true check true
  policy audit_blinds_worker for r to deed_worker using true
  CREATE TRIGGER audit_blinds_append_only BEFORE DELETE OR TRUNCATE ON deed.audit_blinds FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  CREATE TRIGGER audit_blinds_rewrite BEFORE UPDATE ON deed.audit_blinds FOR EACH ROW WHEN (((new.salt IS NOT NULL) OR (new.n <> old.n) OR (new.part <> old.part) OR (new.sha256 <> old.sha256))) EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_worker
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
  column run_id uuid
  constraint audit_log_actor_is_named CHECK (((length(actor) >= 1) AND (length(actor) <= 200)))
  constraint audit_log_affected_is_count CHECK ((affected >= 0))
  constraint audit_log_pkey PRIMARY KEY (n)
  CREATE INDEX audit_log_acts_idx ON deed.audit_log USING btree (n) WHERE ((action <> ALL (ARRAY['expire'::text, 'give up'::text, 'proof'::text])) AND ((subject_type <> 'delivery'::text) OR ((action <> ALL (ARRAY['reserve'::text, 'attempt'::text, 'reconcile'::text, 'doubt'::text, 'hold'::text, 'purge'::text])) AND ((action <> 'settle'::text) OR (details ? 'decision'::text)))))
  CREATE INDEX audit_log_at_idx ON deed.audit_log USING brin (at) WITH (pages_per_range='16')
  CREATE INDEX audit_log_many_idx ON deed.audit_log USING gin (((details -> 'ids'::text))) WHERE ((reason IS NOT NULL) AND (details ? 'ids'::text))
  CREATE INDEX audit_log_run_idx ON deed.audit_log USING btree (run_id, n) WHERE (run_id IS NOT NULL)
  CREATE INDEX audit_log_subject_idx ON deed.audit_log USING btree (subject_type, subject_id, n)
  CREATE INDEX audit_log_unmarked_idx ON deed.audit_log USING btree (n) WHERE ((subject_type = 'suppression'::text) AND (subject_id !~ ':hmac:[0-9a-f]{32}$'::text))
  CREATE UNIQUE INDEX audit_log_pkey ON deed.audit_log USING btree (n)
  policy audit_log_admin for * to deed_admin using true check true
  policy audit_log_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy audit_log_owner for * to owner using true check true
  policy audit_log_worker for * to deed_worker using true check true
  CREATE TRIGGER audit_log_append_only BEFORE DELETE OR TRUNCATE ON deed.audit_log FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  CREATE TRIGGER audit_log_rewrite BEFORE UPDATE ON deed.audit_log FOR EACH ROW WHEN ((((new.reason IS DISTINCT FROM old.reason) AND ((old.reason IS NULL) OR (new.reason IS DISTINCT FROM 'erased'::text))) OR ((new.subject_id IS DISTINCT FROM old.subject_id) AND (((old.subject_type <> 'suppression'::text) OR (new.subject_id !~ '^[a-z]+:hmac:[0-9a-f]{32}$'::text)) IS NOT FALSE) AND (NOT ((new.subject_id IS NULL) AND (old.subject_type = ANY (ARRAY['suppression'::text, 'plan'::text])) AND deed.is_removed(old.tenant_id)))) OR (old.n IS DISTINCT FROM new.n) OR (old.at IS DISTINCT FROM new.at) OR (old.tenant_id IS DISTINCT FROM new.tenant_id) OR (old.run_id IS DISTINCT FROM new.run_id) OR (old.actor IS DISTINCT FROM new.actor) OR (old.login IS DISTINCT FROM new.login) OR (old.action IS DISTINCT FROM new.action) OR (old.subject_type IS DISTINCT FROM new.subject_type) OR (old.from_status IS DISTINCT FROM new.from_status) OR (old.to_status IS DISTINCT FROM new.to_status) OR (old.affected IS DISTINCT FROM new.affected) OR ((old.details IS DISTINCT FROM new.details) AND (NOT ((NOT (new.details IS DISTINCT FROM (old.details - ARRAY['last_error'::text, 'error'::text, 'source'::text, 'message_id'::text]))) AND deed.is_removed(old.tenant_id)))))) EXECUTE FUNCTION deed.refuse_change()
  CREATE TRIGGER audit_log_salts AFTER UPDATE ON deed.audit_log FOR EACH ROW WHEN (((new.reason IS DISTINCT FROM old.reason) OR (new.subject_id IS DISTINCT FROM old.subject_id) OR (new.details IS DISTINCT FROM old.details))) EXECUTE FUNCTION deed.forget_salts()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.audit_seals rls=true forced=true
  column k bigint not null
  column from_n bigint not null
  column upto_n bigint not null
  column rows integer not null
  column leaves bytea not null
  column previous bytea not null
  column sha256 bytea not null
  column key text not null
  column signature bytea not null
  column at timestamp with time zone not null
  constraint audit_seals_are_counted CHECK ((k >= 1))
  constraint audit_seals_from_key UNIQUE (from_n)
  constraint audit_seals_hashes_are_whole CHECK (((octet_length(previous) = 32) AND (octet_length(sha256) = 32) AND (octet_length(signature) = 64) AND (length(key) = 16)))
  constraint audit_seals_leaves_are_whole CHECK (((rows >= 1) AND (octet_length(leaves) = (rows * 40))))
  constraint audit_seals_numbers_are_a_range CHECK (((from_n >= 0) AND (upto_n > from_n)))
  constraint audit_seals_pkey PRIMARY KEY (k)
  CREATE UNIQUE INDEX audit_seals_from_key ON deed.audit_seals USING btree (from_n)
  CREATE UNIQUE INDEX audit_seals_pkey ON deed.audit_seals USING btree (k)
  policy audit_seals_admin for r to deed_admin using true
  policy audit_seals_owner for * to owner using true check true
  policy audit_seals_worker for r to deed_worker using true
  CREATE TRIGGER audit_seals_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON deed.audit_seals FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_worker
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
  column reached bigint
  column began_at timestamp with time zone
  constraint backfills_pkey PRIMARY KEY (subscription)
  CREATE UNIQUE INDEX backfills_pkey ON deed.backfills USING btree (subscription)
  policy backfills_admin for r to deed_admin using true
  policy backfills_owner for * to owner using true check true
  policy backfills_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
view deed.campaign_audit_log with security_invoker=true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.campaign_contents rls=true forced=true
  column id uuid not null
  column campaign_id uuid not null
  column tenant_id uuid not null
  column created_at timestamp with time zone not null
  column sha256 bytea not null
  column asset_id text not null
  column variant text not null
  column subject text
  column text text
  column html text
  column script text
  column script_version text
  column post_id text
  constraint campaign_contents_campaign_fkey FOREIGN KEY (campaign_id) REFERENCES deed.campaigns(id)
  constraint campaign_contents_names_are_short CHECK (((length(variant) <= 100) AND ((length(asset_id) >= 1) AND (length(asset_id) <= 200)) AND ((length(script_version) >= 1) AND (length(script_version) <= 200)) AND ((length(post_id) >= 1) AND (length(post_id) <= 200))))
  constraint campaign_contents_pkey PRIMARY KEY (id)
  constraint campaign_contents_sha256_is_one CHECK ((octet_length(sha256) = 32))
  constraint campaign_contents_sha256_key UNIQUE (campaign_id, sha256)
  constraint campaign_contents_texts_are_bounded CHECK (((length(subject) <= 2000) AND (octet_length(text) <= 1048576) AND (octet_length(html) <= 1048576) AND (octet_length(script) <= 1048576)))
  CREATE UNIQUE INDEX campaign_contents_pkey ON deed.campaign_contents USING btree (id)
  CREATE UNIQUE INDEX campaign_contents_sha256_key ON deed.campaign_contents USING btree (campaign_id, sha256)
  policy campaign_contents_admin for r to deed_admin using true
  policy campaign_contents_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy campaign_contents_owner for * to owner using true check true
  policy campaign_contents_worker for r to deed_worker using true
  CREATE TRIGGER campaign_contents_rewrite BEFORE DELETE OR UPDATE ON deed.campaign_contents FOR EACH ROW EXECUTE FUNCTION deed.refuse_campaign_change()
  CREATE TRIGGER campaign_contents_truncate BEFORE TRUNCATE ON deed.campaign_contents FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.campaign_runs rls=true forced=true with fillfactor=80
  column id uuid not null
  column campaign_id uuid not null
  column tenant_id uuid not null
  column workspace_id uuid not null
  column audience_id uuid not null
  column content_id uuid not null
  column status text not null default 'queued'::text
  column channel text not null
  column provider text not null
  column purpose text not null
  column request_id text not null
  column request_sha256 bytea not null
  column members bigint not null
  column scheduled_for timestamp with time zone not null
  column expires_at timestamp with time zone not null
  column created_at timestamp with time zone not null
  column started_at timestamp with time zone
  column finished_at timestamp with time zone
  column options jsonb not null
  column paused_at timestamp with time zone
  column cancelled_at timestamp with time zone
  column retry_of uuid
  column zones jsonb
  column last_due timestamp with time zone
  column paused_why text
  column pause_base jsonb
  column winner text
  column winner_at timestamp with time zone
  column decide_at timestamp with time zone
  column sealed jsonb
  column sealed_at timestamp with time zone
  column purged_at timestamp with time zone
  constraint campaign_runs_audience_fkey FOREIGN KEY (audience_id) REFERENCES deed.audiences(id)
  constraint campaign_runs_campaign_fkey FOREIGN KEY (campaign_id) REFERENCES deed.campaigns(id)
  constraint campaign_runs_channel_is_known CHECK ((channel = ANY (ARRAY['email'::text, 'sms'::text, 'voice'::text, 'social'::text, 'chat'::text])))
  constraint campaign_runs_content_fkey FOREIGN KEY (content_id) REFERENCES deed.campaign_contents(id)
  constraint campaign_runs_end_is_whole CHECK (((finished_at IS NULL) = (status = ANY (ARRAY['queued'::text, 'running'::text]))))
  constraint campaign_runs_has_members CHECK ((members > 0))
  constraint campaign_runs_paused_why_is_short CHECK (((length(paused_why) <= 500) AND ((paused_why IS NULL) OR (paused_at IS NOT NULL))))
  constraint campaign_runs_pkey PRIMARY KEY (id)
  constraint campaign_runs_request_is_short CHECK (((octet_length(request_sha256) = 32) AND ((length(request_id) >= 1) AND (length(request_id) <= 200))))
  constraint campaign_runs_request_key UNIQUE (tenant_id, workspace_id, request_id, channel)
  constraint campaign_runs_seal_is_whole CHECK ((((sealed IS NULL) = (sealed_at IS NULL)) AND ((purged_at IS NULL) OR (sealed_at IS NOT NULL)) AND ((sealed_at IS NULL) OR (finished_at IS NOT NULL))))
  constraint campaign_runs_start_is_whole CHECK (((started_at IS NULL) = (status = 'queued'::text)))
  constraint campaign_runs_status_is_known CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'completed'::text, 'partial'::text, 'failed'::text])))
  constraint campaign_runs_winner_is_whole CHECK ((((winner IS NULL) = (winner_at IS NULL)) AND ((winner IS NULL) OR (decide_at IS NULL))))
  constraint campaign_runs_zones_are_whole CHECK (((zones IS NULL) = (last_due IS NULL)))
  CREATE INDEX campaign_runs_campaign_idx ON deed.campaign_runs USING btree (campaign_id)
  CREATE INDEX campaign_runs_decide_idx ON deed.campaign_runs USING btree (decide_at) WHERE (decide_at IS NOT NULL)
  CREATE INDEX campaign_runs_ended_idx ON deed.campaign_runs USING btree (finished_at) WHERE ((finished_at IS NOT NULL) AND (sealed_at IS NULL))
  CREATE INDEX campaign_runs_open_idx ON deed.campaign_runs USING btree (id) WHERE (finished_at IS NULL)
  CREATE INDEX campaign_runs_sealed_idx ON deed.campaign_runs USING btree (sealed_at) WHERE ((sealed_at IS NOT NULL) AND (purged_at IS NULL))
  CREATE UNIQUE INDEX campaign_runs_pkey ON deed.campaign_runs USING btree (id)
  CREATE UNIQUE INDEX campaign_runs_request_key ON deed.campaign_runs USING btree (tenant_id, workspace_id, request_id, channel)
  CREATE UNIQUE INDEX campaign_runs_retry_idx ON deed.campaign_runs USING btree (retry_of) WHERE (retry_of IS NOT NULL)
  policy campaign_runs_admin for r to deed_admin using true
  policy campaign_runs_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy campaign_runs_owner for * to owner using true check true
  policy campaign_runs_worker for r to deed_worker using true
  CREATE TRIGGER campaign_runs_delete BEFORE DELETE ON deed.campaign_runs FOR EACH ROW EXECUTE FUNCTION deed.check_campaign()
  CREATE TRIGGER campaign_runs_insert BEFORE INSERT ON deed.campaign_runs FOR EACH ROW WHEN ((new.status <> 'queued'::text)) EXECUTE FUNCTION deed.check_campaign()
  CREATE TRIGGER campaign_runs_transition BEFORE UPDATE ON deed.campaign_runs FOR EACH ROW WHEN (((old.status <> new.status) OR (old.id <> new.id) OR (old.campaign_id <> new.campaign_id) OR (old.tenant_id <> new.tenant_id) OR (old.workspace_id <> new.workspace_id) OR (old.audience_id <> new.audience_id) OR (old.content_id <> new.content_id) OR (old.channel <> new.channel) OR (old.provider <> new.provider) OR (old.purpose <> new.purpose) OR (old.request_id <> new.request_id) OR (old.members <> new.members) OR (old.retry_of IS DISTINCT FROM new.retry_of) OR (old.scheduled_for <> new.scheduled_for) OR (old.options <> new.options) OR ((old.winner IS NOT NULL) AND ((old.winner IS DISTINCT FROM new.winner) OR (old.winner_at IS DISTINCT FROM new.winner_at))) OR ((old.sealed_at IS NOT NULL) AND ((old.sealed IS DISTINCT FROM new.sealed) OR (old.sealed_at IS DISTINCT FROM new.sealed_at))) OR (old.zones IS DISTINCT FROM new.zones) OR (old.last_due IS DISTINCT FROM new.last_due) OR (old.finished_at IS DISTINCT FROM new.finished_at) OR ((old.cancelled_at IS NOT NULL) AND (old.cancelled_at IS DISTINCT FROM new.cancelled_at)))) EXECUTE FUNCTION deed.check_campaign()
  CREATE TRIGGER campaign_runs_truncate BEFORE TRUNCATE ON deed.campaign_runs FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.campaign_transitions rls=true forced=true
  column kind text not null
  column from_status text not null
  column to_status text not null
  column meaning text not null
  constraint campaign_transitions_kind_is_known CHECK ((kind = ANY (ARRAY['run'::text, 'job'::text])))
  constraint campaign_transitions_pkey PRIMARY KEY (kind, from_status, to_status)
  CREATE UNIQUE INDEX campaign_transitions_pkey ON deed.campaign_transitions USING btree (kind, from_status, to_status)
  policy campaign_transitions_admin for r to deed_admin using true
  policy campaign_transitions_owner for * to owner using true check true
  policy campaign_transitions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.campaign_workers rls=true forced=true with fillfactor=50
  column worker text not null
  column seen_until timestamp with time zone not null
  constraint campaign_workers_are_named CHECK (((length(worker) >= 1) AND (length(worker) <= 200)))
  constraint campaign_workers_pkey PRIMARY KEY (worker)
  CREATE UNIQUE INDEX campaign_workers_pkey ON deed.campaign_workers USING btree (worker)
  policy campaign_workers_admin for r to deed_admin using true
  policy campaign_workers_owner for * to owner using true check true
  policy campaign_workers_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.campaigns rls=true forced=true
  column id uuid not null
  column tenant_id uuid not null
  column workspace_id uuid not null
  column name text not null
  column created_at timestamp with time zone not null
  constraint campaigns_name_is_short CHECK (((length(name) >= 1) AND (length(name) <= 200)))
  constraint campaigns_name_key UNIQUE (tenant_id, workspace_id, name)
  constraint campaigns_pkey PRIMARY KEY (id)
  constraint campaigns_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE UNIQUE INDEX campaigns_name_key ON deed.campaigns USING btree (tenant_id, workspace_id, name)
  CREATE UNIQUE INDEX campaigns_pkey ON deed.campaigns USING btree (id)
  policy campaigns_admin for r to deed_admin using true
  policy campaigns_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy campaigns_owner for * to owner using true check true
  policy campaigns_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.channel_messages rls=true forced=true with fillfactor=70
  column id uuid not null
  column tenant_id uuid not null
  column source text not null
  column platform_message_id text not null
  column turn bigint not null default nextval('deed.turn_seq'::regclass)
  column contact_id uuid
  column kind text not null
  column sender text not null
  column reply_to text
  column text text
  column body text
  column status text not null
  column claim bigint not null default 0
  column claimed_by text
  column lease_until timestamp with time zone
  column process_after timestamp with time zone
  column held_at timestamp with time zone
  column attempts integer not null default 0
  column error text
  column correlation_id text not null
  column received_at timestamp with time zone not null
  column finished_at timestamp with time zone
  column emptied_at timestamp with time zone
  column claimed_at timestamp with time zone
  column lost_claims integer not null default 0
  constraint channel_messages_accepted_has_a_lease CHECK (((status = 'accepted'::text) = (lease_until IS NOT NULL)))
  constraint channel_messages_contact_fkey FOREIGN KEY (tenant_id, contact_id) REFERENCES deed.contacts(tenant_id, id)
  constraint channel_messages_contents_are_bounded CHECK (((length(reply_to) <= 2048) AND (octet_length(body) <= 1048576) AND (octet_length(text) <= 1048576) AND (length(error) <= 4000)))
  constraint channel_messages_emptied_is_empty CHECK (((emptied_at IS NULL) OR (num_nonnulls(reply_to, text, body) = 0)))
  constraint channel_messages_ended_has_a_time CHECK (((status = 'accepted'::text) = (finished_at IS NULL)))
  constraint channel_messages_failed_waits CHECK (((num_nonnulls(process_after, held_at) = 0) OR ((status = 'dispatch_failed'::text) AND (num_nonnulls(process_after, held_at) = 1))))
  constraint channel_messages_names_are_short CHECK (((source ~ '^[A-Za-z0-9._-]{1,100}$'::text) AND (kind ~ '^[a-z][a-z0-9_]{0,62}$'::text) AND (octet_length(platform_message_id) >= 1) AND (octet_length(platform_message_id) <= 255) AND (length(sender) <= 500) AND (length(correlation_id) <= 200) AND (length(claimed_by) <= 200)))
  constraint channel_messages_of_tenant_key UNIQUE (tenant_id, id)
  constraint channel_messages_pkey PRIMARY KEY (id)
  constraint channel_messages_platform_key UNIQUE (tenant_id, source, platform_message_id)
  constraint channel_messages_status_is_known CHECK (((status = ANY (ARRAY['accepted'::text, 'executed'::text, 'dispatch_failed'::text])) OR (status ~ '^denied_[a-z0-9_]{1,56}$'::text)))
  constraint channel_messages_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE INDEX channel_messages_contact_idx ON deed.channel_messages USING btree (contact_id) WHERE (contact_id IS NOT NULL)
  CREATE INDEX channel_messages_due_idx ON deed.channel_messages USING btree (source, COALESCE(lease_until, process_after)) WHERE (COALESCE(lease_until, process_after) < 'infinity'::timestamp with time zone)
  CREATE INDEX channel_messages_emptied_idx ON deed.channel_messages USING btree (emptied_at) WHERE (emptied_at IS NOT NULL)
  CREATE INDEX channel_messages_executed_idx ON deed.channel_messages USING btree (contact_id, source, finished_at) WHERE (status = 'executed'::text)
  CREATE INDEX channel_messages_failed_idx ON deed.channel_messages USING btree (source, finished_at) WHERE ((status = 'dispatch_failed'::text) AND (held_at IS NULL) AND (process_after IS NULL))
  CREATE INDEX channel_messages_held_idx ON deed.channel_messages USING btree (id) WHERE (held_at IS NOT NULL)
  CREATE INDEX channel_messages_kept_idx ON deed.channel_messages USING btree (received_at) WHERE (emptied_at IS NULL)
  CREATE INDEX channel_messages_waiting_idx ON deed.channel_messages USING btree (tenant_id, source, kind, sender, turn) WHERE (lease_until = 'infinity'::timestamp with time zone)
  CREATE UNIQUE INDEX channel_messages_of_tenant_key ON deed.channel_messages USING btree (tenant_id, id)
  CREATE UNIQUE INDEX channel_messages_pkey ON deed.channel_messages USING btree (id)
  CREATE UNIQUE INDEX channel_messages_platform_key ON deed.channel_messages USING btree (tenant_id, source, platform_message_id)
  CREATE UNIQUE INDEX channel_messages_turn_idx ON deed.channel_messages USING btree (tenant_id, source, kind, sender) WHERE (COALESCE(lease_until, process_after) < 'infinity'::timestamp with time zone)
  policy channel_messages_admin for r to deed_admin using true
  policy channel_messages_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy channel_messages_owner for * to owner using true check true
  policy channel_messages_worker for r to deed_worker using true
  CREATE TRIGGER channel_messages_delete BEFORE DELETE ON deed.channel_messages FOR EACH ROW WHEN ((old.finished_at IS NULL)) EXECUTE FUNCTION deed.check_message()
  CREATE TRIGGER channel_messages_insert BEFORE INSERT ON deed.channel_messages FOR EACH ROW WHEN ((new.status <> 'accepted'::text)) EXECUTE FUNCTION deed.check_message()
  CREATE TRIGGER channel_messages_transition BEFORE UPDATE ON deed.channel_messages FOR EACH ROW WHEN (((old.status <> new.status) AND ((old.status <> 'accepted'::text) OR (new.status <> 'executed'::text)))) EXECUTE FUNCTION deed.check_message()
  CREATE TRIGGER channel_messages_truncate BEFORE TRUNCATE ON deed.channel_messages FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.channel_outbox rls=true forced=true with autovacuum_vacuum_scale_factor=0.05, fillfactor=80
  column id uuid not null
  column tenant_id uuid not null
  column workspace_id uuid not null default '00000000-0000-0000-0000-000000000000'::uuid
  column idempotency_key bytea not null
  column status text not null default 'queued'::text
  column skipped boolean not null default false
  column attempts integer not null default 0
  column max_attempts integer
  column channel text not null
  column provider text not null
  column lane text not null default ''::text
  column guarantee text not null default 'at_most_once'::text
  column created_at timestamp with time zone not null
  column process_after timestamp with time zone
  column ord timestamp with time zone not null generated as COALESCE(process_after, created_at)
  column claimed_at timestamp with time zone
  column lease_until timestamp with time zone
  column claim bigint
  column first_called_at timestamp with time zone
  column called_at timestamp with time zone
  column repeat_safe_until timestamp with time zone
  column doubt_since timestamp with time zone
  column held_at timestamp with time zone
  column sent_at timestamp with time zone
  column finished_at timestamp with time zone
  column updated_at timestamp with time zone not null
  column run_id uuid
  column job_id uuid
  column channel_message_id uuid
  column attempt_count integer generated as attempts
  column locked_at timestamp with time zone generated as claimed_at
  column claimed_by text
  column recipient_id text
  column recipient text
  column recipient_domain text generated as 
CASE
    WHEN (recipient ~~ '%://%'::text) THEN lower("substring"(recipient, '^[A-Za-z]+://(?:[^@/?#]*@)?([^@/:?#]+)'::text))
    WHEN (recipient ~~ '%@%'::text) THEN lower(split_part(recipient, '@'::text, '-1'::integer))
    ELSE NULL::text
END
  column correlation_id text
  column provider_message_id text
  column skip_reason text
  column doubt_reason text
  column last_error text
  column payload jsonb not null
  column request bytea
  column sandbox boolean not null default false
  column request_kind text
  column request_account text
  column deferred_since timestamp with time zone
  column deferrals integer not null default 0
  column expires_at timestamp with time zone
  column due boolean not null default false
  column payload_bytes integer
  column lost_claims integer not null default 0
  column unsettled_since timestamp with time zone
  column proved_at timestamp with time zone
  column purpose text not null default ''::text
  column contact_id uuid
  column erased_at timestamp with time zone
  column request_sha256 bytea
  column cc text[]
  column batch_id uuid
  column batch_place smallint
  column batch_size smallint
  column batch_until timestamp with time zone
  column contents bytea[]
  column made_at timestamp with time zone
  constraint channel_outbox_attempts_are_sane CHECK (((attempts >= 0) AND ((max_attempts >= 1) AND (max_attempts <= 1000))))
  constraint channel_outbox_batch_is_whole CHECK (((num_nulls(batch_id, batch_place, batch_size) = ANY (ARRAY[0, 3])) AND ((batch_place >= 1) AND (batch_place <= batch_size)) AND ((batch_until IS NULL) OR (batch_id IS NOT NULL))))
  constraint channel_outbox_called_is_voice CHECK (((status <> 'called'::text) OR (channel = 'voice'::text)))
  constraint channel_outbox_channel_is_known CHECK ((channel = ANY (ARRAY['email'::text, 'sms'::text, 'voice'::text, 'social'::text, 'chat'::text, 'webhook'::text])))
  constraint channel_outbox_channel_message_fkey FOREIGN KEY (tenant_id, channel_message_id) REFERENCES deed.channel_messages(tenant_id, id) NOT VALID not valid
  constraint channel_outbox_doubt_is_sending CHECK ((((doubt_since IS NULL) AND (held_at IS NULL)) OR (status = 'sending'::text)))
  constraint channel_outbox_doubt_is_whole CHECK (((num_nulls(doubt_since, doubt_reason) = ANY (ARRAY[0, 2])) AND ((held_at IS NULL) OR (doubt_since IS NOT NULL))))
  constraint channel_outbox_end_is_free CHECK (((finished_at IS NULL) OR (lease_until IS NULL)))
  constraint channel_outbox_end_is_whole CHECK (((finished_at IS NULL) = (status = ANY (ARRAY['queued'::text, 'sending'::text]))))
  constraint channel_outbox_guarantee_is_known CHECK ((guarantee = ANY (ARRAY['at_most_once'::text, 'at_least_once'::text])))
  constraint channel_outbox_idempotency_key_key UNIQUE (tenant_id, workspace_id, idempotency_key)
  constraint channel_outbox_key_is_sha256 CHECK ((octet_length(idempotency_key) = 32))
  constraint channel_outbox_lease_is_whole CHECK (((num_nulls(claimed_at, lease_until, claimed_by) = ANY (ARRAY[0, 3])) AND ((lease_until IS NULL) OR (claim IS NOT NULL))))
  constraint channel_outbox_payload_is_object CHECK ((jsonb_typeof(payload) = 'object'::text))
  constraint channel_outbox_pkey PRIMARY KEY (id)
  constraint channel_outbox_posted_is_social CHECK (((status <> 'posted'::text) OR (channel = 'social'::text)))
  constraint channel_outbox_provider_is_named CHECK (((length(provider) >= 1) AND (length(provider) <= 100)))
  constraint channel_outbox_purpose_is_named CHECK (((length(purpose) <= 100) AND (purpose !~ '[^A-Za-z0-9._-]'::text)))
  constraint channel_outbox_recipient_is_short CHECK (((length(recipient) <= 2000) AND (length(recipient_id) <= 200)))
  constraint channel_outbox_sending_was_begun CHECK (((status <> 'sending'::text) OR ((request IS NOT NULL) AND (claim IS NOT NULL) AND (attempts > 0) AND (num_nulls(first_called_at, called_at) = 0))))
  constraint channel_outbox_sent_at_is_whole CHECK (((sent_at IS NULL) = (status <> ALL (ARRAY['sent'::text, 'called'::text, 'posted'::text]))))
  constraint channel_outbox_sent_is_written CHECK (((status <> 'sent'::text) OR (channel <> ALL (ARRAY['voice'::text, 'social'::text]))))
  constraint channel_outbox_skipped_has_reason CHECK (((status <> 'skipped'::text) OR (skipped AND (skip_reason IS NOT NULL))))
  constraint channel_outbox_skipped_status_check CHECK (((skipped = false) OR (status = 'skipped'::text)))
  constraint channel_outbox_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'sending'::text, 'sent'::text, 'called'::text, 'posted'::text, 'failed'::text, 'dead'::text, 'skipped'::text])))
  constraint channel_outbox_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  constraint channel_outbox_texts_are_short CHECK (((length(last_error) <= 4000) AND (length(doubt_reason) <= 4000) AND (length(correlation_id) <= 200) AND (length(provider_message_id) <= 500) AND (length(skip_reason) <= 200)))
  CREATE INDEX channel_outbox_channel_message_idx ON deed.channel_outbox USING btree (channel_message_id) WHERE (channel_message_id IS NOT NULL)
  CREATE INDEX channel_outbox_contact_idx ON deed.channel_outbox USING btree (contact_id, id) WHERE (contact_id IS NOT NULL)
  CREATE INDEX channel_outbox_contents_idx ON deed.channel_outbox USING gin (contents) WHERE ((contents IS NOT NULL) AND (status = ANY (ARRAY['queued'::text, 'sending'::text, 'failed'::text, 'dead'::text])))
  CREATE INDEX channel_outbox_dead_idx ON deed.channel_outbox USING btree (provider, finished_at) WHERE ((status = 'dead'::text) AND (run_id IS NULL) AND (proved_at IS NULL) AND (erased_at IS NULL))
  CREATE INDEX channel_outbox_end_idx ON deed.channel_outbox USING btree (finished_at) WHERE (finished_at IS NOT NULL)
  CREATE INDEX channel_outbox_ended_badly_idx ON deed.channel_outbox USING btree (status, provider, id) WHERE (status = ANY (ARRAY['failed'::text, 'dead'::text]))
  CREATE INDEX channel_outbox_expiring_idx ON deed.channel_outbox USING btree (expires_at) WHERE ((status = 'queued'::text) AND (expires_at IS NOT NULL))
  CREATE INDEX channel_outbox_message_idx ON deed.channel_outbox USING btree (provider_message_id) WHERE ((provider_message_id IS NOT NULL) AND (channel = ANY (ARRAY['email'::text, 'sms'::text, 'voice'::text])))
  CREATE INDEX channel_outbox_ready_idx ON deed.channel_outbox USING btree (status, provider, tenant_id, COALESCE(run_id, '00000000-0000-0000-0000-000000000000'::uuid), lane, ord, id) WHERE due
  CREATE INDEX channel_outbox_scheduled_idx ON deed.channel_outbox USING btree (provider, tenant_id, ord) WHERE ((status = 'queued'::text) AND (NOT due))
  CREATE INDEX channel_outbox_sending_idx ON deed.channel_outbox USING btree (provider, ((held_at IS NULL)), ord) WHERE (status = 'sending'::text)
  CREATE INDEX channel_outbox_unsettled_idx ON deed.channel_outbox USING btree (called_at) WHERE (unsettled_since IS NOT NULL)
  CREATE INDEX channel_outbox_waiting_idx ON deed.channel_outbox USING btree (provider, ord) WHERE ((status = 'queued'::text) AND (NOT due))
  CREATE INDEX idx_channel_outbox_run_id ON deed.channel_outbox USING btree (run_id, job_id) WHERE (run_id IS NOT NULL)
  CREATE UNIQUE INDEX channel_outbox_batch_idx ON deed.channel_outbox USING btree (provider, batch_id, batch_place) WHERE ((status = 'sending'::text) AND (batch_until IS NOT NULL))
  CREATE UNIQUE INDEX channel_outbox_idempotency_key_key ON deed.channel_outbox USING btree (tenant_id, workspace_id, idempotency_key)
  CREATE UNIQUE INDEX channel_outbox_pkey ON deed.channel_outbox USING btree (id)
  policy channel_outbox_admin for r to deed_admin using true
  policy channel_outbox_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy channel_outbox_owner for * to owner using true check true
  policy channel_outbox_worker for r to deed_worker using true
  CREATE TRIGGER channel_outbox_delete BEFORE DELETE ON deed.channel_outbox FOR EACH ROW WHEN ((old.finished_at IS NULL)) EXECUTE FUNCTION deed.refuse_rewrite()
  CREATE TRIGGER channel_outbox_due BEFORE UPDATE OF status, process_after, doubt_since, held_at ON deed.channel_outbox FOR EACH ROW WHEN (((new.due IS DISTINCT FROM (((new.process_after IS NULL) OR (new.process_after <= clock_timestamp())) AND ((new.status = 'queued'::text) OR ((new.status = 'sending'::text) AND (new.doubt_since IS NOT NULL) AND (new.held_at IS NULL))))) OR ((new.status = 'queued'::text) AND ((old.finished_at IS NOT NULL) OR (old.held_at IS NOT NULL))))) EXECUTE FUNCTION deed.mark_due()
  CREATE TRIGGER channel_outbox_insert BEFORE INSERT ON deed.channel_outbox FOR EACH ROW WHEN ((new.status <> 'queued'::text)) EXECUTE FUNCTION deed.check_transition()
  CREATE TRIGGER channel_outbox_rewrite BEFORE UPDATE OF id, tenant_id, workspace_id, idempotency_key, provider, channel, request, recipient, erased_at ON deed.channel_outbox FOR EACH ROW WHEN (((old.id IS DISTINCT FROM new.id) OR (old.tenant_id IS DISTINCT FROM new.tenant_id) OR (old.workspace_id IS DISTINCT FROM new.workspace_id) OR (old.idempotency_key IS DISTINCT FROM new.idempotency_key) OR (old.provider IS DISTINCT FROM new.provider) OR (old.channel IS DISTINCT FROM new.channel) OR ((old.request IS NOT NULL) AND (old.request IS DISTINCT FROM new.request) AND ((new.request IS NOT NULL) OR (old.status <> 'sending'::text) OR (new.status <> ALL (ARRAY['sent'::text, 'called'::text, 'posted'::text])) OR (new.run_id IS NULL) OR (new.finished_at IS NULL) OR (new.request_sha256 IS DISTINCT FROM sha256(old.request)))) OR ((old.erased_at IS NOT NULL) AND ((new.erased_at IS DISTINCT FROM old.erased_at) OR (new.request IS NOT NULL) OR (new.recipient IS NOT NULL))))) EXECUTE FUNCTION deed.refuse_rewrite()
  CREATE TRIGGER channel_outbox_transition BEFORE UPDATE ON deed.channel_outbox FOR EACH ROW WHEN (((old.status <> new.status) AND ((old.status <> 'queued'::text) OR (new.status <> 'sending'::text)) AND ((old.status <> 'sending'::text) OR (new.status <> ALL (ARRAY['sent'::text, 'called'::text, 'posted'::text]))))) EXECUTE FUNCTION deed.check_transition()
  CREATE TRIGGER channel_outbox_truncate BEFORE TRUNCATE ON deed.channel_outbox FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
sequence deed.claim_seq
  grant usage to deed_admin
  grant usage to deed_worker
table deed.consents rls=true forced=true
  column n bigint not null default nextval('deed.contact_seq'::regclass)
  column tenant_id uuid not null
  column contact_id uuid not null
  column channel text not null
  column purpose text not null
  column state text not null
  column source text not null
  column evidence jsonb not null default '{}'::jsonb
  column actor text not null
  column at timestamp with time zone not null
  column expires_at timestamp with time zone
  constraint consents_actor_is_short CHECK (((length(actor) >= 1) AND (length(actor) <= 200)))
  constraint consents_channel_is_known CHECK ((channel = ANY (ARRAY['email'::text, 'sms'::text, 'voice'::text, 'social'::text, 'chat'::text, 'webhook'::text])))
  constraint consents_contact_fkey FOREIGN KEY (tenant_id, contact_id) REFERENCES deed.contacts(tenant_id, id)
  constraint consents_evidence_is_object CHECK (((jsonb_typeof(evidence) = 'object'::text) AND (pg_column_size(evidence) <= 10000)))
  constraint consents_pending_ends CHECK (((state = 'pending'::text) = (expires_at IS NOT NULL)))
  constraint consents_pkey PRIMARY KEY (n)
  constraint consents_purpose_is_named CHECK ((purpose ~ '^[A-Za-z0-9._-]{1,100}$'::text))
  constraint consents_source_is_short CHECK (((length(source) >= 1) AND (length(source) <= 200)))
  constraint consents_state_is_known CHECK ((state = ANY (ARRAY['granted'::text, 'revoked'::text, 'pending'::text])))
  CREATE INDEX consents_contact_idx ON deed.consents USING btree (contact_id, channel, purpose, n)
  CREATE UNIQUE INDEX consents_pkey ON deed.consents USING btree (n)
  policy consents_admin for r to deed_admin using true
  policy consents_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy consents_owner for * to owner using true check true
  policy consents_worker for r to deed_worker using true
  CREATE TRIGGER consents_append_only BEFORE TRUNCATE ON deed.consents FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  CREATE TRIGGER consents_delete BEFORE DELETE ON deed.consents FOR EACH ROW EXECUTE FUNCTION deed.refuse_change()
  CREATE TRIGGER consents_rewrite BEFORE UPDATE ON deed.consents FOR EACH ROW WHEN (((new.evidence <> '{}'::jsonb) OR (old.n IS DISTINCT FROM new.n) OR (old.tenant_id IS DISTINCT FROM new.tenant_id) OR (old.contact_id IS DISTINCT FROM new.contact_id) OR (old.channel IS DISTINCT FROM new.channel) OR (old.purpose IS DISTINCT FROM new.purpose) OR (old.state IS DISTINCT FROM new.state) OR (old.source IS DISTINCT FROM new.source) OR (old.actor IS DISTINCT FROM new.actor) OR (old.at IS DISTINCT FROM new.at) OR (old.expires_at IS DISTINCT FROM new.expires_at))) EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.contact_identities rls=true forced=true
  column tenant_id uuid not null
  column contact_id uuid not null
  column type text not null
  column value text not null
  column verified_at timestamp with time zone
  column created_at timestamp with time zone not null
  constraint contact_identities_contact_fkey FOREIGN KEY (tenant_id, contact_id) REFERENCES deed.contacts(tenant_id, id)
  constraint contact_identities_pkey PRIMARY KEY (contact_id, type, value)
  constraint contact_identities_type_is_named CHECK ((type ~ '^[a-z][a-z0-9_]{0,62}$'::text))
  constraint contact_identities_value_is_short CHECK (((length(value) >= 1) AND (length(value) <= 500)))
  CREATE UNIQUE INDEX contact_identities_pkey ON deed.contact_identities USING btree (contact_id, type, value)
  CREATE UNIQUE INDEX uniq_identity_email_lower ON deed.contact_identities USING btree (tenant_id, lower(value), type) WHERE (type = 'email'::text)
  CREATE UNIQUE INDEX uniq_identity_external ON deed.contact_identities USING btree (tenant_id, value, type) WHERE (type = 'external_id'::text)
  CREATE UNIQUE INDEX uniq_identity_other ON deed.contact_identities USING btree (tenant_id, type, value) WHERE (type <> ALL (ARRAY['external_id'::text, 'email'::text]))
  policy contact_identities_admin for r to deed_admin using true
  policy contact_identities_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy contact_identities_owner for * to owner using true check true
  policy contact_identities_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.contact_merges rls=true forced=true
  column n bigint not null default nextval('deed.contact_seq'::regclass)
  column tenant_id uuid not null
  column from_id uuid not null
  column into_id uuid not null
  column reason text not null
  column actor text not null
  column at timestamp with time zone not null
  column undone_at timestamp with time zone
  column undone_by text
  column undone_for text
  constraint contact_merges_actor_is_short CHECK (((length(actor) >= 1) AND (length(actor) <= 200)))
  constraint contact_merges_from_fkey FOREIGN KEY (tenant_id, from_id) REFERENCES deed.contacts(tenant_id, id)
  constraint contact_merges_into_fkey FOREIGN KEY (tenant_id, into_id) REFERENCES deed.contacts(tenant_id, id)
  constraint contact_merges_pkey PRIMARY KEY (n)
  constraint contact_merges_reason_is_short CHECK (((length(reason) >= 1) AND (length(reason) <= 2000)))
  constraint contact_merges_undone_is_short CHECK (((length(undone_by) <= 200) AND (length(undone_for) <= 2000)))
  constraint contact_merges_undone_is_whole CHECK ((num_nulls(undone_at, undone_by, undone_for) = ANY (ARRAY[0, 3])))
  CREATE INDEX contact_merges_from_idx ON deed.contact_merges USING btree (from_id)
  CREATE INDEX contact_merges_into_idx ON deed.contact_merges USING btree (into_id)
  CREATE UNIQUE INDEX contact_merges_open_idx ON deed.contact_merges USING btree (from_id) WHERE (undone_at IS NULL)
  CREATE UNIQUE INDEX contact_merges_pkey ON deed.contact_merges USING btree (n)
  policy contact_merges_admin for r to deed_admin using true
  policy contact_merges_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy contact_merges_owner for * to owner using true check true
  policy contact_merges_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
sequence deed.contact_seq
table deed.contacts rls=true forced=true with fillfactor=80
  column id uuid not null
  column tenant_id uuid not null
  column data jsonb not null default '{}'::jsonb
  column zone text
  column locale text
  column created_at timestamp with time zone not null
  column updated_at timestamp with time zone not null
  column erased_at timestamp with time zone
  column merged_into uuid
  constraint contacts_data_is_object CHECK (((jsonb_typeof(data) = 'object'::text) AND (pg_column_size(data) <= 70000)))
  constraint contacts_erased_is_empty CHECK (((erased_at IS NULL) OR ((data = '{}'::jsonb) AND (num_nonnulls(zone, locale) = 0))))
  constraint contacts_merged_fkey FOREIGN KEY (tenant_id, merged_into) REFERENCES deed.contacts(tenant_id, id)
  constraint contacts_merged_is_another CHECK ((merged_into <> id))
  constraint contacts_of_tenant_key UNIQUE (tenant_id, id)
  constraint contacts_pkey PRIMARY KEY (id)
  constraint contacts_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  constraint contacts_texts_are_short CHECK (((length(zone) <= 64) AND (length(locale) <= 35)))
  CREATE INDEX contacts_merged_idx ON deed.contacts USING btree (merged_into) WHERE (merged_into IS NOT NULL)
  CREATE UNIQUE INDEX contacts_of_tenant_key ON deed.contacts USING btree (tenant_id, id)
  CREATE UNIQUE INDEX contacts_pkey ON deed.contacts USING btree (id)
  policy contacts_admin for r to deed_admin using true
  policy contacts_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy contacts_owner for * to owner using true check true
  policy contacts_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.contents rls=true forced=true
  column tenant_id uuid not null
  column sha256 bytea not null
  column bytes bytea not null
  column size integer not null
  column type text not null
  column created_at timestamp with time zone not null
  column used_at timestamp with time zone not null
  column passed_at timestamp with time zone
  constraint contents_is_named_by_its_bytes CHECK (((sha256 = sha256(bytes)) AND (size = octet_length(bytes))))
  constraint contents_is_small CHECK (((size >= 1) AND (size <= 7340032)))
  constraint contents_pkey PRIMARY KEY (tenant_id, sha256)
  constraint contents_type_is_short CHECK (((length(type) >= 1) AND (length(type) <= 200)))
  CREATE INDEX contents_due_idx ON deed.contents USING btree (GREATEST(used_at, passed_at))
  CREATE INDEX contents_of_tenant_idx ON deed.contents USING btree (tenant_id, used_at, sha256)
  CREATE INDEX contents_used_idx ON deed.contents USING btree (used_at)
  CREATE UNIQUE INDEX contents_pkey ON deed.contents USING btree (tenant_id, sha256)
  policy contents_admin for r to deed_admin using true
  policy contents_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy contents_owner for * to owner using true check true
  policy contents_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.contracts rls=true forced=true
  column pack text not null
  column hash text not null
  column adopting text
  column installed_at timestamp with time zone not null default clock_timestamp()
  column adopting_topics jsonb
  constraint contracts_pkey PRIMARY KEY (pack)
  CREATE UNIQUE INDEX contracts_pkey ON deed.contracts USING btree (pack)
  policy contracts_admin for * to deed_admin using true check true
  policy contracts_app for r to deed_app using true
  policy contracts_owner for * to owner using true check true
  policy contracts_worker for * to deed_worker using true check true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.delivered rls=true forced=true with fillfactor=50
  column subscription integer not null
  column topic text not null default ''::text
  column delivered bigint not null
  column last_at timestamp with time zone not null
  constraint delivered_is_count CHECK ((delivered >= 0))
  constraint delivered_pkey PRIMARY KEY (subscription, topic)
  CREATE UNIQUE INDEX delivered_pkey ON deed.delivered USING btree (subscription, topic)
  policy delivered_admin for r to deed_admin using true
  policy delivered_owner for * to owner using true check true
  policy delivered_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.delivery_attempts rls=true forced=true
  column delivery_id uuid not null
  column tenant_id uuid not null
  column claim bigint not null
  column number integer not null
  column outcome text not null
  column late boolean not null default false
  column sandbox boolean not null default false
  column at timestamp with time zone not null
  column began_at timestamp with time zone
  column took interval
  column worker text not null
  column provider_key text
  column provider_message_id text
  column code text
  column error text
  constraint delivery_attempts_outcome_is_known CHECK ((outcome = ANY (ARRAY['accepted'::text, 'refused'::text, 'bad address'::text, 'opted out'::text, 'not now'::text, 'deferred'::text, 'outage'::text, 'unknown'::text, 'lost'::text, 'proved'::text])))
  constraint delivery_attempts_pkey PRIMARY KEY (delivery_id, claim, number, outcome)
  constraint delivery_attempts_texts_are_short CHECK (((length(worker) >= 1) AND (length(worker) <= 200) AND (length(provider_key) <= 300) AND (length(provider_message_id) <= 500) AND (length(code) <= 100) AND (length(error) <= 4000)))
  CREATE UNIQUE INDEX delivery_attempts_pkey ON deed.delivery_attempts USING btree (delivery_id, claim, number, outcome)
  policy delivery_attempts_admin for r to deed_admin using true
  policy delivery_attempts_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy delivery_attempts_owner for * to owner using true check true
  policy delivery_attempts_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.delivery_feedback rls=true forced=true
  column delivery_id uuid not null
  column tenant_id uuid not null
  column run_id uuid
  column delivered_at timestamp with time zone
  column bounced_at timestamp with time zone
  column complained_at timestamp with time zone
  column unsubscribed_at timestamp with time zone
  column opened_at timestamp with time zone
  column clicked_at timestamp with time zone
  column answered_at timestamp with time zone
  column reason text
  column code text
  column bounce text
  column bounce_since timestamp with time zone
  column last_delivered_at timestamp with time zone
  constraint delivery_feedback_bounce_is_whole CHECK ((((bounce = ANY (ARRAY['hard'::text, 'dropped'::text, 'soft'::text])) AND (bounce_since IS NOT NULL) AND (bounced_at IS NOT NULL)) OR (num_nonnulls(bounce, bounce_since) = 0)))
  constraint delivery_feedback_pkey PRIMARY KEY (delivery_id)
  constraint delivery_feedback_texts_are_short CHECK (((length(reason) <= 1000) AND (length(code) <= 100)))
  CREATE INDEX delivery_feedback_complaints_idx ON deed.delivery_feedback USING btree (run_id) WHERE ((complained_at IS NOT NULL) AND (run_id IS NOT NULL))
  CREATE UNIQUE INDEX delivery_feedback_pkey ON deed.delivery_feedback USING btree (delivery_id)
  policy delivery_feedback_admin for r to deed_admin using true
  policy delivery_feedback_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy delivery_feedback_owner for * to owner using true check true
  policy delivery_feedback_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.delivery_holds rls=true forced=true
  column run_id uuid not null
  column tenant_id uuid not null
  column at timestamp with time zone not null
  constraint delivery_holds_pkey PRIMARY KEY (run_id)
  CREATE UNIQUE INDEX delivery_holds_pkey ON deed.delivery_holds USING btree (run_id)
  policy delivery_holds_admin for r to deed_admin using true
  policy delivery_holds_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy delivery_holds_owner for * to owner using true check true
  policy delivery_holds_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.delivery_transitions rls=true forced=true
  column from_status text not null
  column to_status text not null
  column made_by text not null
  column meaning text not null
  constraint delivery_transitions_made_by_is_known CHECK ((made_by = ANY (ARRAY['ledger'::text, 'person'::text])))
  constraint delivery_transitions_pkey PRIMARY KEY (from_status, to_status)
  CREATE UNIQUE INDEX delivery_transitions_pkey ON deed.delivery_transitions USING btree (from_status, to_status)
  policy delivery_transitions_admin for r to deed_admin using true
  policy delivery_transitions_owner for * to owner using true check true
  policy delivery_transitions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.door_claims rls=true forced=true
  column claim bigint not null
  column tenant_id uuid not null
  column token uuid not null
  column claimed_at timestamp with time zone not null
  column ids bigint[] not null
  constraint door_claims_pkey PRIMARY KEY (claim, tenant_id)
  CREATE INDEX door_claims_token_idx ON deed.door_claims USING btree (token)
  CREATE UNIQUE INDEX door_claims_pkey ON deed.door_claims USING btree (claim, tenant_id)
  policy door_claims_admin for r to deed_admin using true
  policy door_claims_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy door_claims_owner for * to owner using true check true
  policy door_claims_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.erased_contents rls=true forced=true
  column n bigint not null identity always
  column tenant_id uuid not null
  column sha256 bytea not null
  column actor text not null
  column tried_at timestamp with time zone not null
  constraint erased_contents_pkey PRIMARY KEY (n)
  CREATE INDEX erased_contents_tried_idx ON deed.erased_contents USING btree (tried_at)
  CREATE UNIQUE INDEX erased_contents_pkey ON deed.erased_contents USING btree (n)
  policy erased_contents_admin for r to deed_admin using true
  policy erased_contents_owner for * to owner using true check true
  policy erased_contents_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.erasing rls=true forced=true
  column n bigint not null
  column xid xid8 not null
  column channels text[] not null
  column addresses text[] not null
  column reached uuid not null default '00000000-0000-0000-0000-000000000000'::uuid
  column waiting uuid[] not null default '{}'::uuid[]
  column tried_at timestamp with time zone
  constraint erasing_n_fkey FOREIGN KEY (n) REFERENCES deed.erasures(n)
  constraint erasing_pkey PRIMARY KEY (n)
  CREATE UNIQUE INDEX erasing_pkey ON deed.erasing USING btree (n)
  policy erasing_owner for * to owner using true check true
table deed.erasures rls=true forced=true
  column n bigint not null identity always
  column tenant_id uuid not null
  column contact_id uuid not null
  column names uuid[] not null
  column reason text not null
  column actor text not null
  column at timestamp with time zone not null
  column deliveries bigint not null
  column finished_at timestamp with time zone
  column exported_at timestamp with time zone
  column suppressed boolean not null default false
  constraint erasures_actor_is_short CHECK (((length(actor) >= 1) AND (length(actor) <= 200)))
  constraint erasures_contact_fkey FOREIGN KEY (tenant_id, contact_id) REFERENCES deed.contacts(tenant_id, id)
  constraint erasures_pkey PRIMARY KEY (n)
  constraint erasures_reason_is_short CHECK (((length(reason) >= 1) AND (length(reason) <= 2000)))
  CREATE INDEX erasures_tenant_idx ON deed.erasures USING btree (tenant_id, n)
  CREATE INDEX erasures_unexported_idx ON deed.erasures USING btree (n) WHERE (exported_at IS NULL)
  CREATE UNIQUE INDEX erasures_contact_idx ON deed.erasures USING btree (contact_id)
  CREATE UNIQUE INDEX erasures_pkey ON deed.erasures USING btree (n)
  policy erasures_admin for r to deed_admin using true
  policy erasures_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy erasures_owner for * to owner using true check true
  policy erasures_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
view deed.finished with security_barrier=true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.former_lanes rls=true forced=true
  column subscription integer not null
  column lane integer not null
  column slot_from integer not null
  column slot_upto integer not null
  column ended_at timestamp with time zone not null default clock_timestamp()
  column kept_from bigint not null default 0
  column since bigint
  constraint former_lanes_pkey PRIMARY KEY (subscription, lane)
  CREATE UNIQUE INDEX former_lanes_pkey ON deed.former_lanes USING btree (subscription, lane)
  policy former_lanes_admin for r to deed_admin using true
  policy former_lanes_owner for * to owner using true check true
  policy former_lanes_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.history_lock rls=true forced=true
  column none boolean
  constraint history_lock_stays_empty CHECK (false)
table deed.identity_conflicts rls=true forced=true
  column n bigint not null identity always
  column tenant_id uuid not null
  column contact_ids uuid[] not null
  column types text[] not null
  column actor text not null
  column at timestamp with time zone not null
  column times integer not null default 1
  column settled_at timestamp with time zone
  constraint identity_conflicts_are_several CHECK ((cardinality(contact_ids) > 1))
  constraint identity_conflicts_pkey PRIMARY KEY (n)
  constraint identity_conflicts_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE INDEX identity_conflicts_tenant_idx ON deed.identity_conflicts USING btree (tenant_id)
  CREATE UNIQUE INDEX identity_conflicts_open_idx ON deed.identity_conflicts USING btree (tenant_id, contact_ids) WHERE (settled_at IS NULL)
  CREATE UNIQUE INDEX identity_conflicts_pkey ON deed.identity_conflicts USING btree (n)
  policy identity_conflicts_admin for r to deed_admin using true
  policy identity_conflicts_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy identity_conflicts_owner for * to owner using true check true
  policy identity_conflicts_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.job_queue rls=true forced=true with fillfactor=70
  column id uuid not null
  column run_id uuid not null
  column tenant_id uuid not null
  column workspace_id uuid not null
  column job_type text not null
  column status text not null default 'queued'::text
  column attempts integer not null default 0
  column process_after timestamp with time zone not null
  column from_n bigint not null
  column upto_n bigint not null
  column claim bigint
  column claimed_by text
  column lease_until timestamp with time zone
  column expanded_at timestamp with time zone
  column finished_at timestamp with time zone
  column created_at timestamp with time zone not null
  column sent integer
  column skipped integer
  column missed integer
  column failed integer
  column dead integer
  column last_error text
  column counted_at timestamp with time zone
  column queued integer
  column sending integer
  column in_doubt integer
  column held integer
  column reasons jsonb
  column part text
  column members integer
  constraint job_queue_attempts_are_sane CHECK ((attempts >= 0))
  constraint job_queue_counts_are_whole CHECK ((num_nulls(sent, skipped, missed, failed, dead) = ANY (ARRAY[0, 5])))
  constraint job_queue_end_is_whole CHECK (((finished_at IS NULL) = (status = ANY (ARRAY['queued'::text, 'locked'::text]))))
  constraint job_queue_error_is_short CHECK ((length(last_error) <= 4000))
  constraint job_queue_lease_is_whole CHECK (((num_nulls(claim, claimed_by, lease_until) = ANY (ARRAY[0, 3])) AND ((lease_until IS NOT NULL) = ((status = 'locked'::text) AND (expanded_at IS NULL)))))
  constraint job_queue_members_are_a_range CHECK (((from_n >= 1) AND ((upto_n >= from_n) AND (upto_n <= (from_n + 999)))))
  constraint job_queue_open_counts_are_whole CHECK ((num_nulls(queued, sending, in_doubt, held, counted_at, reasons) = ANY (ARRAY[0, 6])))
  constraint job_queue_part_is_whole CHECK ((((part IS NULL) = (members IS NULL)) AND ((part IS NULL) OR (part = ANY (ARRAY['test'::text, 'rest'::text]))) AND ((members IS NULL) OR ((members >= 1) AND (members <= ((upto_n - from_n) + 1))))))
  constraint job_queue_pkey PRIMARY KEY (id)
  constraint job_queue_run_fkey FOREIGN KEY (run_id) REFERENCES deed.campaign_runs(id)
  constraint job_queue_status_is_known CHECK ((status = ANY (ARRAY['queued'::text, 'locked'::text, 'completed'::text, 'failed'::text, 'dead'::text])))
  constraint job_queue_type_is_known CHECK ((job_type = ANY (ARRAY['email_send_batch'::text, 'voice_call_batch'::text, 'social_post_batch'::text, 'sms_send_batch'::text, 'chat_send_batch'::text])))
  CREATE INDEX job_queue_due_idx ON deed.job_queue USING btree (process_after) WHERE (status = 'queued'::text)
  CREATE INDEX job_queue_lost_idx ON deed.job_queue USING btree (lease_until) WHERE ((status = 'locked'::text) AND (expanded_at IS NULL))
  CREATE INDEX job_queue_open_idx ON deed.job_queue USING btree (process_after) WHERE ((status = 'locked'::text) AND (expanded_at IS NOT NULL))
  CREATE INDEX job_queue_tenant_idx ON deed.job_queue USING btree (tenant_id)
  CREATE UNIQUE INDEX job_queue_members_key ON deed.job_queue USING btree (run_id, from_n, COALESCE(part, ''::text))
  CREATE UNIQUE INDEX job_queue_pkey ON deed.job_queue USING btree (id)
  policy job_queue_admin for r to deed_admin using true
  policy job_queue_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy job_queue_owner for * to owner using true check true
  policy job_queue_worker for r to deed_worker using true
  CREATE TRIGGER job_queue_delete BEFORE DELETE ON deed.job_queue FOR EACH ROW EXECUTE FUNCTION deed.check_campaign()
  CREATE TRIGGER job_queue_insert BEFORE INSERT ON deed.job_queue FOR EACH ROW WHEN ((new.status <> 'queued'::text)) EXECUTE FUNCTION deed.check_campaign()
  CREATE TRIGGER job_queue_transition BEFORE UPDATE ON deed.job_queue FOR EACH ROW WHEN (((old.status <> new.status) OR (old.id <> new.id) OR (old.run_id <> new.run_id) OR (old.tenant_id <> new.tenant_id) OR (old.workspace_id <> new.workspace_id) OR (old.job_type <> new.job_type) OR (old.from_n <> new.from_n) OR (old.upto_n <> new.upto_n) OR (old.part IS DISTINCT FROM new.part) OR (old.members IS DISTINCT FROM new.members) OR ((old.expanded_at IS NOT NULL) AND (old.expanded_at IS DISTINCT FROM new.expanded_at)))) EXECUTE FUNCTION deed.check_campaign()
  CREATE TRIGGER job_queue_truncate BEFORE TRUNCATE ON deed.job_queue FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
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
  CREATE INDEX kept_id_idx ON deed.kept USING btree (id)
  CREATE UNIQUE INDEX kept_pkey ON deed.kept USING btree (slot, id)
  policy kept_admin for r to deed_admin using true
  policy kept_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy kept_owner for * to owner using true check true
  policy kept_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.lane_lock rls=true forced=true
  column none boolean
  constraint lane_lock_stays_empty CHECK (false)
table deed.lane_tokens rls=true forced=true with fillfactor=50
  column provider text not null
  column lane text not null
  column tokens double precision not null
  column at timestamp with time zone not null
  constraint lane_tokens_pkey PRIMARY KEY (provider, lane)
  CREATE UNIQUE INDEX lane_tokens_pkey ON deed.lane_tokens USING btree (provider, lane)
  policy lane_tokens_admin for r to deed_admin using true
  policy lane_tokens_owner for * to owner using true check true
  policy lane_tokens_worker for r to deed_worker using true
  grant select to deed_admin
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
  column kept_from bigint not null default 0
  constraint lanes_held_under_lease CHECK ((num_nulls(worker, lease_until) = ANY (ARRAY[0, 2])))
  constraint lanes_is_range CHECK ((slot_upto >= slot_from))
  constraint lanes_pkey PRIMARY KEY (subscription, lane)
  CREATE UNIQUE INDEX lanes_pkey ON deed.lanes USING btree (subscription, lane)
  policy lanes_admin for r to deed_admin using true
  policy lanes_owner for * to owner using true check true
  policy lanes_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.list_lock rls=true forced=true
  column none boolean
  constraint list_lock_stays_empty CHECK (false)
sequence deed.list_seq
  grant usage to deed_admin
  grant usage to deed_worker
table deed.log partition by RANGE (id) rls=true forced=true
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
  constraint log_slot_id_key UNIQUE (slot, id)
  CREATE INDEX log_xid_idx ON ONLY deed.log USING btree (xid)
  CREATE UNIQUE INDEX log_slot_id_key ON ONLY deed.log USING btree (slot, id)
  policy log_admin for r to deed_admin using true
  policy log_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy log_owner for * to owner using true check true
  policy log_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
sequence deed.log_seq
  grant usage to deed_admin
  grant usage to deed_worker
sequence deed.mark_seq
table deed.message_transitions rls=true forced=true
  column from_status text not null
  column to_status text not null
  constraint message_transitions_pkey PRIMARY KEY (from_status, to_status)
  CREATE UNIQUE INDEX message_transitions_pkey ON deed.message_transitions USING btree (from_status, to_status)
  policy message_transitions_owner for * to owner using true check true
table deed.migrations rls=false forced=false
  column version integer not null
  column name text not null
  column breaking boolean not null
  column hash text not null
  column applied_at timestamp with time zone not null default clock_timestamp()
  column number integer not null default 0
  constraint migrations_pkey PRIMARY KEY (version)
  CREATE UNIQUE INDEX migrations_pkey ON deed.migrations USING btree (version)
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.partition_lock rls=true forced=true
  column none boolean
  constraint partition_lock_stays_empty CHECK (false)
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
  column restarts integer not null default 0
  column last_id bigint
  column summarised integer not null default 0
  constraint partitions_is_range CHECK (((from_id = (n * '68719476736'::bigint)) AND (upto_id = (from_id + '68719476736'::bigint))))
  constraint partitions_pkey PRIMARY KEY (n)
  CREATE UNIQUE INDEX partitions_pkey ON deed.partitions USING btree (n)
  policy partitions_admin for r to deed_admin using true
  policy partitions_owner for * to owner using true check true
  policy partitions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.pauses rls=true forced=true with fillfactor=50
  column provider text not null
  column destination text not null default ''::text
  column since timestamp with time zone not null
  column until timestamp with time zone not null
  column failures integer not null default 1
  column probe uuid
  column probe_claim bigint
  column why text not null
  column tenant_id uuid not null default '00000000-0000-0000-0000-000000000000'::uuid
  constraint pauses_of_provider_is_everybodys CHECK (((destination <> ''::text) OR (tenant_id = '00000000-0000-0000-0000-000000000000'::uuid)))
  constraint pauses_pkey PRIMARY KEY (provider, destination, tenant_id)
  constraint pauses_probe_is_whole CHECK ((num_nulls(probe, probe_claim) = ANY (ARRAY[0, 2])))
  constraint pauses_provider_is_short CHECK (((length(provider) >= 1) AND (length(provider) <= 100)))
  constraint pauses_times_are_sane CHECK ((isfinite(since) AND isfinite(until) AND (failures >= 1)))
  constraint pauses_why_is_short CHECK (((length(why) >= 1) AND (length(why) <= 4000)))
  CREATE UNIQUE INDEX pauses_pkey ON deed.pauses USING btree (provider, destination, tenant_id)
  policy pauses_admin for r to deed_admin using true
  policy pauses_owner for * to owner using true check true
  policy pauses_worker for r to deed_worker using true
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
  CREATE INDEX pending_blocked_idx ON deed.pending USING btree (id, subscription) WHERE ((key_hash IS NOT NULL) AND (NOT parked))
  CREATE INDEX pending_claim_idx ON deed.pending USING btree (subscription, ord, id) WHERE ((dead_at IS NULL) AND (NOT parked))
  CREATE INDEX pending_dead_idx ON deed.pending USING btree (subscription, id) WHERE (dead_at IS NOT NULL)
  CREATE INDEX pending_dead_newest_idx ON deed.pending USING btree (id, subscription) WHERE (dead_at IS NOT NULL)
  CREATE INDEX pending_free_idx ON deed.pending USING btree (subscription, key_hash) WHERE ((key_hash IS NOT NULL) AND (NOT parked))
  CREATE INDEX pending_key_idx ON deed.pending USING btree (subscription, key_hash, id) WHERE (key_hash IS NOT NULL)
  CREATE INDEX pending_retry_idx ON deed.pending USING btree (subscription, attempts) WHERE ((attempts > 0) AND (dead_at IS NULL) AND (NOT parked))
  CREATE UNIQUE INDEX pending_pkey ON deed.pending USING btree (subscription, id)
  policy pending_admin for * to deed_admin using true check true
  policy pending_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy pending_owner for * to owner using true check true
  policy pending_worker for * to deed_worker using true check true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.plan_steps rls=true forced=true
  column tenant_id uuid not null
  column place integer not null
  column needs_success boolean not null
  column plan_id text not null
  column plan_version text not null
  column step_id text not null
  column kind text not null
  column depends integer[] not null
  column successors integer[] not null
  column attempts integer not null default 1
  column backoff interval not null default '00:00:01'::interval
  column at_most_once boolean not null default false
  column queue text not null default 'deed'::text
  constraint plan_steps_kind_is_known CHECK ((kind = ANY (ARRAY['go'::text, 'http'::text, 'publish'::text, 'deliver'::text, 'external'::text, 'sleep'::text])))
  constraint plan_steps_pkey PRIMARY KEY (tenant_id, plan_id, plan_version, place)
  constraint plan_steps_place_is_bounded CHECK (((place >= 0) AND (place <= 999)))
  CREATE INDEX plan_steps_name_idx ON deed.plan_steps USING btree (tenant_id, plan_id, plan_version, step_id)
  CREATE UNIQUE INDEX plan_steps_pkey ON deed.plan_steps USING btree (tenant_id, plan_id, plan_version, place)
  policy plan_steps_admin for r to deed_admin using true
  policy plan_steps_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy plan_steps_owner for * to owner using true check true
  policy plan_steps_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.plans rls=true forced=true
  column tenant_id uuid not null
  column sha256 bytea not null
  column created_at timestamp with time zone not null
  column schema_version integer not null
  column steps integer not null
  column plan_id text not null
  column plan_version text not null
  column created_by text not null
  column body bytea not null
  column approval boolean not null default false
  column hold interval
  constraint plans_are_bounded CHECK (((octet_length(body) <= 262144) AND ((steps >= 1) AND (steps <= 1000))))
  constraint plans_hash_is_sha256 CHECK ((octet_length(sha256) = 32))
  constraint plans_names_are_short CHECK (((length(plan_id) >= 1) AND (length(plan_id) <= 100) AND (length(plan_version) >= 1) AND (length(plan_version) <= 100) AND (length(created_by) >= 1) AND (length(created_by) <= 200)))
  constraint plans_pkey PRIMARY KEY (tenant_id, plan_id, plan_version)
  constraint plans_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE UNIQUE INDEX plans_pkey ON deed.plans USING btree (tenant_id, plan_id, plan_version)
  policy plans_admin for r to deed_admin using true
  policy plans_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy plans_owner for * to owner using true check true
  policy plans_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
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
  column aside_ids bigint[]
  constraint progress_aside_is_listed CHECK (((aside_ids IS NULL) OR (cardinality(aside_ids) = aside))) NOT VALID not valid
  constraint progress_pkey PRIMARY KEY (subscription, lane, n)
  CREATE UNIQUE INDEX progress_pkey ON deed.progress USING btree (subscription, lane, n)
  policy progress_admin for r to deed_admin using true
  policy progress_owner for * to owner using true check true
  policy progress_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.provider_lock rls=true forced=true
  column none boolean
  constraint provider_lock_stays_empty CHECK (false)
table deed.providers rls=true forced=true
  column name text not null
  column kind text not null
  column key_window interval
  column can_look_up boolean not null default false
  column registered_at timestamp with time zone not null
  column account text not null default ''::text
  column sandbox boolean not null default false
  column idle_worker text
  column idle_kind text
  column idle_account text
  column idle_sandbox boolean
  column idle_until timestamp with time zone
  column lanes text not null default 'domain'::text
  column relane boolean not null default true
  column reports text[]
  column verified_domains text[]
  column channels text[]
  column tenants uuid[]
  constraint providers_account_is_short CHECK ((length(account) <= 300))
  constraint providers_channels_are_some CHECK (((array_position(channels, NULL::text) IS NULL) AND (cardinality(channels) > 0)))
  constraint providers_kind_is_short CHECK (((length(kind) >= 1) AND (length(kind) <= 100)))
  constraint providers_lanes_are_known CHECK ((lanes = ANY (ARRAY['domain'::text, 'host'::text, 'country'::text, 'recipient'::text, 'none'::text])))
  constraint providers_name_is_valid CHECK ((name ~ '^[A-Za-z0-9._-]{1,100}$'::text))
  constraint providers_pkey PRIMARY KEY (name)
  constraint providers_reports_are_known CHECK ((reports <@ ARRAY['accepted'::text, 'delivered'::text, 'bounced'::text, 'soft_bounced'::text, 'dropped'::text, 'complained'::text, 'unsubscribed'::text, 'opened'::text, 'clicked'::text, 'answered'::text]))
  constraint providers_tenants_are_some CHECK (((array_position(tenants, NULL::uuid) IS NULL) AND (cardinality(tenants) > 0)))
  constraint providers_verified_domains_are_some CHECK (((array_position(verified_domains, NULL::text) IS NULL) AND ((cardinality(verified_domains) >= 1) AND (cardinality(verified_domains) <= 1000))))
  CREATE UNIQUE INDEX providers_pkey ON deed.providers USING btree (name)
  policy providers_admin for r to deed_admin using true
  policy providers_owner for * to owner using true check true
  policy providers_worker for r to deed_worker using true
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
  policy publish_keys_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy publish_keys_owner for * to owner using true check true
  policy publish_keys_worker for * to deed_worker using true check true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.purges rls=true forced=true
  column xid xid8 not null default pg_current_xact_id()
  column id bigint not null
  constraint purges_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX purges_pkey ON deed.purges USING btree (id)
  policy purges_admin for * to deed_admin using true check true
  policy purges_owner for * to owner using true check true
  policy purges_worker for * to deed_worker using true check true
  grant insert to deed_admin
  grant insert to deed_worker
  grant select to deed_admin
  grant select to deed_worker
table deed.rate_limits rls=true forced=true with fillfactor=20
  column provider text not null
  column lane text not null default ''::text
  column rate double precision not null
  column burst double precision not null
  column tokens double precision not null
  column at timestamp with time zone not null
  column run_id uuid
  column spent double precision not null default 0
  column ramp double precision[]
  constraint rate_limits_are_sane CHECK (((rate > (0)::double precision) AND (burst >= (1)::double precision)))
  constraint rate_limits_pkey PRIMARY KEY (provider, lane)
  constraint rate_limits_run_is_lane CHECK (((run_id IS NULL) OR (lane = (run_id)::text)))
  CREATE UNIQUE INDEX rate_limits_pkey ON deed.rate_limits USING btree (provider, lane)
  CREATE UNIQUE INDEX rate_limits_run_idx ON deed.rate_limits USING btree (provider, run_id) WHERE (run_id IS NOT NULL)
  policy rate_limits_admin for r to deed_admin using true
  policy rate_limits_owner for * to owner using true check true
  policy rate_limits_worker for r to deed_worker using true
  grant select to deed_admin
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
  column outcome text not null default 'delivered'::text
  column topics jsonb
  column gone integer not null default 0
  constraint receipts_adds_up CHECK ((finished = cardinality(ids)))
  constraint receipts_counts_are_counts CHECK (((finished >= 0) AND (failed >= 0) AND (lost >= 0)))
  constraint receipts_outcome_is_known CHECK ((outcome = ANY (ARRAY['delivered'::text, 'discarded'::text])))
  constraint receipts_pkey PRIMARY KEY (n)
  CREATE INDEX receipts_ids_idx ON deed.receipts USING gist (int8range(min_id, max_id, '[]'::text)) WHERE (finished > 0)
  CREATE INDEX receipts_lost_idx ON deed.receipts USING btree (finished_at) WHERE (finished = 0)
  CREATE INDEX receipts_unfinished_idx ON deed.receipts USING btree (n) WHERE (finished_at IS NULL)
  CREATE UNIQUE INDEX receipts_pkey ON deed.receipts USING btree (n)
  policy receipts_admin for * to deed_admin using true check true
  policy receipts_owner for * to owner using true check true
  policy receipts_worker for * to deed_worker using true check true
  grant select to deed_admin
  grant select to deed_worker
table deed.redrives rls=true forced=true
  column request text not null
  column asked jsonb not null
  column state text not null default 'running'::text
  column rate integer
  column chosen bigint not null
  column redriven bigint not null default 0
  column upto_id bigint not null default 0
  column upto_sub integer not null default 0
  column actor text not null
  column reason text
  column started_at timestamp with time zone not null default clock_timestamp()
  column stepped_at timestamp with time zone not null default clock_timestamp()
  column finished_at timestamp with time zone
  column upto_status text
  column upto_provider text
  column upto_delivery uuid
  constraint redrives_counts_are_counts CHECK (((chosen >= 0) AND (redriven >= 0)))
  constraint redrives_end_is_whole CHECK (((state = 'running'::text) = (finished_at IS NULL)))
  constraint redrives_pkey PRIMARY KEY (request)
  constraint redrives_rate_is_positive CHECK ((rate >= 1))
  constraint redrives_request_is_short CHECK (((length(request) >= 1) AND (length(request) <= 200)))
  constraint redrives_state_is_known CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'cancelled'::text])))
  CREATE INDEX redrives_started_idx ON deed.redrives USING btree (started_at, request)
  CREATE UNIQUE INDEX redrives_pkey ON deed.redrives USING btree (request)
  policy redrives_admin for * to deed_admin using true check true
  policy redrives_owner for * to owner using true check true
  policy redrives_worker for * to deed_worker using true check true
  grant select to deed_admin
  grant select to deed_worker
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
table deed.removals rls=true forced=true
  column n bigint not null identity always
  column subscription integer not null
  column topic text not null
  column name text
  column slot_base integer not null
  column whole boolean not null
  column start text
  column list_version bigint
  column log_id bigint not null
  column actor text not null
  column reason text not null
  column removed_at timestamp with time zone not null default clock_timestamp()
  column made_by xid8 not null
  column upto xid8
  column system_identifier bigint
  column at_id bigint not null default 0
  column left_some boolean not null default false
  column is_final boolean not null default false
  column waits boolean not null default false
  column taken bigint not null default 0
  column finished_at timestamp with time zone
  constraint removals_is_named CHECK (((name IS NULL) = (subscription = 0)))
  constraint removals_pkey PRIMARY KEY (n)
  constraint removals_taken_is_count CHECK ((taken >= 0))
  CREATE INDEX removals_subscription_idx ON deed.removals USING btree (subscription)
  CREATE INDEX removals_topic_idx ON deed.removals USING btree (topic)
  CREATE UNIQUE INDEX removals_pkey ON deed.removals USING btree (n)
  policy removals_admin for r to deed_admin using true
  policy removals_owner for * to owner using true check true
  policy removals_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.retention_lock rls=true forced=true
  column none boolean
  constraint retention_lock_stays_empty CHECK (false)
table deed.run_behind rls=true forced=true
  column n bigint not null identity always
  column run_id uuid not null
  column seq bigint not null
  constraint run_behind_pkey PRIMARY KEY (n)
  CREATE UNIQUE INDEX run_behind_pkey ON deed.run_behind USING btree (n)
  policy run_behind_admin for r to deed_admin using true
  policy run_behind_owner for * to owner using true check true
  policy run_behind_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
view deed.run_events with security_invoker=true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.run_functions rls=true forced=true
  column registered_at timestamp with time zone not null
  column version integer not null
  column function_id text not null
  column body bytea not null
  constraint run_functions_are_bounded CHECK (((length(function_id) >= 1) AND (length(function_id) <= 100) AND (octet_length(body) <= 4096)))
  constraint run_functions_pkey PRIMARY KEY (function_id, version)
  constraint run_functions_version_counts CHECK ((version >= 1))
  CREATE UNIQUE INDEX run_functions_pkey ON deed.run_functions USING btree (function_id, version)
  policy run_functions_admin for r to deed_admin using true
  policy run_functions_owner for * to owner using true check true
  policy run_functions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.run_log partition by RANGE (run_id) rls=true forced=true
  column run_id uuid not null
  column tenant_id uuid not null
  column run_seq bigint not null
  column emitted_at timestamp with time zone not null
  column persisted_at timestamp with time zone not null
  column logical_attempt integer not null
  column engine_attempt integer
  column event_type text not null
  column step_id text
  column idempotency_key bytea not null
  column adapter_version text
  column engine_run_ref jsonb
  column caused_by_signal_id uuid
  column parent_event_id uuid
  column event_data jsonb not null
  column redacted_sha256 bytea
  constraint run_log_counts_from_one CHECK (((run_seq >= 1) AND (logical_attempt >= 1) AND (engine_attempt >= 1)))
  constraint run_log_data_are_bounded CHECK (((jsonb_typeof(event_data) = 'object'::text) AND ((pg_column_size(event_data) <= 10000) OR (octet_length((event_data)::text) <= 65536))))
  constraint run_log_key_is_sha256 CHECK ((octet_length(idempotency_key) = 32))
  constraint run_log_names_are_short CHECK (((step_id <> 'RUN'::text) AND ((length(step_id) >= 1) AND (length(step_id) <= 200)) AND (length(adapter_version) <= 40)))
  constraint run_log_once UNIQUE (run_id, idempotency_key)
  constraint run_log_pkey PRIMARY KEY (run_id, run_seq)
  constraint run_log_step_of_steps CHECK (((step_id IS NOT NULL) = ("left"(event_type, 4) = 'Step'::text)))
  CREATE INDEX run_log_type_idx ON ONLY deed.run_log USING btree (event_type, persisted_at)
  CREATE UNIQUE INDEX run_log_ends_idx ON ONLY deed.run_log USING btree (run_id, step_id, logical_attempt) WHERE (event_type = ANY (ARRAY['StepCompleted'::text, 'StepFailed'::text, 'StepSkipped'::text]))
  CREATE UNIQUE INDEX run_log_once ON ONLY deed.run_log USING btree (run_id, idempotency_key)
  CREATE UNIQUE INDEX run_log_pkey ON ONLY deed.run_log USING btree (run_id, run_seq)
  policy run_log_admin for r to deed_admin using true
  policy run_log_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy run_log_owner for * to owner using true check true
  policy run_log_worker for r to deed_worker using true
  CREATE TRIGGER run_log_delete BEFORE DELETE ON deed.run_log FOR EACH ROW EXECUTE FUNCTION deed.refuse_run_change()
  CREATE TRIGGER run_log_rewrite BEFORE UPDATE ON deed.run_log FOR EACH ROW EXECUTE FUNCTION deed.refuse_run_change()
  CREATE TRIGGER run_log_truncate BEFORE TRUNCATE ON deed.run_log FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_run_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.run_partitions rls=true forced=true
  column n integer not null
  column from_id uuid not null
  column upto_id uuid not null
  column made_at timestamp with time zone not null default clock_timestamp()
  column dropped_at timestamp with time zone
  constraint run_partitions_is_range CHECK ((from_id < upto_id))
  constraint run_partitions_pkey PRIMARY KEY (n)
  CREATE UNIQUE INDEX run_partitions_pkey ON deed.run_partitions USING btree (n)
  policy run_partitions_admin for r to deed_admin using true
  policy run_partitions_owner for * to owner using true check true
  policy run_partitions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.run_request_lock rls=true forced=true
  column request_key bytea not null
  constraint run_request_lock_pkey PRIMARY KEY (request_key)
  CREATE UNIQUE INDEX run_request_lock_pkey ON deed.run_request_lock USING btree (request_key)
  policy run_request_lock_owner for * to owner using true check true
table deed.run_requests rls=true forced=true
  column request_key bytea not null
  column run_id uuid not null
  column tenant_id uuid not null
  constraint run_requests_key_is_sha256 CHECK ((octet_length(request_key) = 32))
  constraint run_requests_pkey PRIMARY KEY (request_key)
  constraint run_requests_run_key UNIQUE (run_id)
  CREATE UNIQUE INDEX run_requests_pkey ON deed.run_requests USING btree (request_key)
  CREATE UNIQUE INDEX run_requests_run_key ON deed.run_requests USING btree (run_id)
  policy run_requests_admin for r to deed_admin using true
  policy run_requests_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy run_requests_owner for * to owner using true check true
  policy run_requests_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.run_snapshots rls=true forced=true
  column run_id uuid not null
  column tenant_id uuid not null
  column last_event_seq bigint not null
  column projected_at timestamp with time zone not null
  column snapshot jsonb not null
  constraint run_snapshots_pkey PRIMARY KEY (run_id, last_event_seq)
  CREATE UNIQUE INDEX run_snapshots_pkey ON deed.run_snapshots USING btree (run_id, last_event_seq)
  policy run_snapshots_admin for r to deed_admin using true
  policy run_snapshots_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy run_snapshots_owner for * to owner using true check true
  policy run_snapshots_worker for r to deed_worker using true
  CREATE TRIGGER run_snapshots_rewrite BEFORE UPDATE ON deed.run_snapshots FOR EACH ROW EXECUTE FUNCTION deed.refuse_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.run_stale rls=true forced=true
  column run_id uuid not null
  column tenant_id uuid not null
  column since timestamp with time zone not null
  column expected_seq bigint not null
  column got_seq bigint
  constraint run_stale_pkey PRIMARY KEY (run_id)
  CREATE UNIQUE INDEX run_stale_pkey ON deed.run_stale USING btree (run_id)
  policy run_stale_admin for r to deed_admin using true
  policy run_stale_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy run_stale_owner for * to owner using true check true
  policy run_stale_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.run_steps rls=true forced=true with autovacuum_vacuum_insert_scale_factor=0.2, autovacuum_vacuum_scale_factor=0.02, fillfactor=60
  column run_id uuid not null
  column tenant_id uuid not null
  column process_after timestamp with time zone not null
  column begun_at timestamp with time zone
  column claim bigint
  column claimed_at timestamp with time zone
  column lease_until timestamp with time zone
  column place integer not null
  column attempt integer not null default 1
  column engine_attempt integer not null default 0
  column lost_claims integer not null default 0
  column key_n integer not null default 1
  column ready boolean not null
  column parked boolean not null default false
  column at_most_once boolean not null
  column engine text not null
  column queue text not null
  column step_id text not null
  column verdict text
  column claimed_by text
  column deadline timestamp with time zone
  column offer jsonb
  column given_back bigint
  column begun_claim bigint
  constraint run_steps_claim_is_whole CHECK ((((claim IS NULL) = (lease_until IS NULL)) AND ((claim IS NULL) = (claimed_at IS NULL)) AND ((claim IS NULL) = (claimed_by IS NULL))))
  constraint run_steps_claimed_is_ready CHECK ((ready OR (claim IS NULL) OR (offer IS NOT NULL)))
  constraint run_steps_counts CHECK (((attempt >= 1) AND (engine_attempt >= 0) AND (lost_claims >= 0) AND (key_n >= 1) AND (key_n <= (attempt + 1))))
  constraint run_steps_pkey PRIMARY KEY (run_id, place)
  constraint run_steps_verdict_is_known CHECK ((verdict = ANY (ARRAY['WORKER_LOST'::text, 'OUTCOME_UNKNOWN'::text, 'HOLD_OVER'::text, 'TIMEOUT'::text])))
  CREATE INDEX run_steps_awaiting_idx ON deed.run_steps USING btree (run_id, place) WHERE (parked AND (NOT ready) AND (process_after = 'infinity'::timestamp with time zone))
  CREATE INDEX run_steps_ready_idx ON deed.run_steps USING btree (engine, queue, tenant_id, process_after) WHERE ready
  CREATE INDEX run_steps_waiting_idx ON deed.run_steps USING btree (process_after) WHERE (NOT ready)
  CREATE UNIQUE INDEX run_steps_pkey ON deed.run_steps USING btree (run_id, place)
  policy run_steps_admin for r to deed_admin using true
  policy run_steps_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy run_steps_owner for * to owner using true check true
  policy run_steps_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.run_transitions rls=true forced=true
  column event_type text not null
  column from_status text not null
  column to_status text not null
  constraint run_transitions_pkey PRIMARY KEY (event_type, from_status)
  CREATE UNIQUE INDEX run_transitions_pkey ON deed.run_transitions USING btree (event_type, from_status)
  policy run_transitions_admin for r to deed_admin using true
  policy run_transitions_owner for * to owner using true check true
  policy run_transitions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.run_workers rls=true forced=true with fillfactor=50
  column instance uuid not null
  column started_at timestamp with time zone not null
  column seen_until timestamp with time zone not null
  column worker text not null
  column queues text[] not null
  constraint run_workers_are_bounded CHECK (((length(worker) >= 1) AND (length(worker) <= 200) AND (cardinality(queues) <= 10000)))
  constraint run_workers_pkey PRIMARY KEY (instance)
  CREATE UNIQUE INDEX run_workers_pkey ON deed.run_workers USING btree (instance)
  policy run_workers_admin for r to deed_admin using true
  policy run_workers_owner for * to owner using true check true
  policy run_workers_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.running_calls rls=true forced=true with fillfactor=50
  column subscription integer not null
  column worker uuid not null
  column name text not null
  column id bigint not null
  column message_id uuid not null
  column messages integer not null
  column since timestamp with time zone not null
  column seen_until timestamp with time zone not null
  constraint running_calls_pkey PRIMARY KEY (subscription, worker)
  CREATE UNIQUE INDEX running_calls_pkey ON deed.running_calls USING btree (subscription, worker)
  policy running_calls_admin for r to deed_admin using true
  policy running_calls_owner for * to owner using true check true
  policy running_calls_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.runs rls=true forced=true with fillfactor=80
  column run_id uuid not null
  column tenant_id uuid not null
  column plan_sha256 bytea
  column input_sha256 bytea not null
  column created_at timestamp with time zone not null
  column started_at timestamp with time zone
  column finished_at timestamp with time zone
  column redacted_at timestamp with time zone
  column original_run_id uuid
  column parent_run_id uuid
  column differing integer not null default 0
  column project text not null
  column environment text not null
  column plan_id text not null
  column plan_version text not null
  column engine text not null
  column status text not null
  column parent_step_id text
  column engine_run_ref jsonb
  column input jsonb
  column done bytea
  column passed bytea
  column failing boolean not null default false
  constraint runs_emptied_when_redacted CHECK (((input IS NULL) = (redacted_at IS NOT NULL)))
  constraint runs_final_has_a_time CHECK (((status = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])) = (finished_at IS NOT NULL)))
  constraint runs_hashes_are_sha256 CHECK (((octet_length(plan_sha256) = 32) AND (octet_length(input_sha256) = 32)))
  constraint runs_input_is_bounded CHECK (((jsonb_typeof(input) = 'object'::text) AND (octet_length((input)::text) <= 65536)))
  constraint runs_names_are_short CHECK (((length(project) >= 1) AND (length(project) <= 200) AND (length(environment) >= 1) AND (length(environment) <= 200) AND (length(plan_id) >= 1) AND (length(plan_id) <= 200) AND (length(plan_version) >= 1) AND (length(plan_version) <= 200) AND (length(parent_step_id) >= 1) AND (length(parent_step_id) <= 200) AND ((engine = 'local'::text) OR (engine ~ '^[a-z][a-z0-9_-]{0,62}$'::text))))
  constraint runs_parent_is_whole CHECK (((parent_run_id IS NULL) = (parent_step_id IS NULL)))
  constraint runs_pkey PRIMARY KEY (run_id)
  constraint runs_status_is_known CHECK ((status = ANY (ARRAY['PENDING'::text, 'APPROVED'::text, 'RUNNING'::text, 'PAUSED'::text, 'COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text])))
  constraint runs_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE INDEX runs_failed_idx ON deed.runs USING btree (run_id) WHERE (status = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text]))
  CREATE INDEX runs_living_idx ON deed.runs USING btree (run_id) WHERE (status = ANY (ARRAY['PENDING'::text, 'APPROVED'::text, 'RUNNING'::text, 'PAUSED'::text]))
  CREATE INDEX runs_tenant_idx ON deed.runs USING btree (tenant_id, run_id)
  CREATE UNIQUE INDEX runs_pkey ON deed.runs USING btree (run_id)
  policy runs_admin for r to deed_admin using true
  policy runs_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy runs_owner for * to owner using true check true
  policy runs_worker for r to deed_worker using true
  CREATE TRIGGER runs_delete BEFORE DELETE ON deed.runs FOR EACH ROW EXECUTE FUNCTION deed.refuse_run_change()
  CREATE TRIGGER runs_rewrite BEFORE UPDATE ON deed.runs FOR EACH ROW WHEN (((old.run_id IS DISTINCT FROM new.run_id) OR (old.tenant_id IS DISTINCT FROM new.tenant_id) OR (old.project IS DISTINCT FROM new.project) OR (old.environment IS DISTINCT FROM new.environment) OR (old.plan_id IS DISTINCT FROM new.plan_id) OR (old.plan_version IS DISTINCT FROM new.plan_version) OR (old.plan_sha256 IS DISTINCT FROM new.plan_sha256) OR (old.input_sha256 IS DISTINCT FROM new.input_sha256) OR (old.input IS DISTINCT FROM new.input) OR (old.created_at IS DISTINCT FROM new.created_at) OR (old.original_run_id IS DISTINCT FROM new.original_run_id) OR (old.parent_run_id IS DISTINCT FROM new.parent_run_id) OR (old.parent_step_id IS DISTINCT FROM new.parent_step_id) OR ((old.finished_at IS NOT NULL) AND ((old.status IS DISTINCT FROM new.status) OR (old.finished_at IS DISTINCT FROM new.finished_at))))) EXECUTE FUNCTION deed.refuse_run_change()
  CREATE TRIGGER runs_truncate BEFORE TRUNCATE ON deed.runs FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_run_change()
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.secrets rls=true forced=true
  column name text not null
  column inner_key bytea not null
  column outer_key bytea not null
  column made_at timestamp with time zone not null
  constraint secrets_are_blocks CHECK (((octet_length(inner_key) = 64) AND (octet_length(outer_key) = 64)))
  constraint secrets_pkey PRIMARY KEY (name)
  CREATE UNIQUE INDEX secrets_pkey ON deed.secrets USING btree (name)
  policy secrets_owner for * to owner using true check true
  CREATE TRIGGER secrets_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON deed.secrets FOR EACH STATEMENT EXECUTE FUNCTION deed.refuse_change()
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
  column bound_logins boolean not null default false
  column max_delivery integer not null default 1048576
  column system_identifier bigint
  column database_oid bigint
  column environment text
  column removed_tenants boolean not null default false
  constraint settings_cluster_is_whole CHECK (((system_identifier IS NULL) = (database_oid IS NULL)))
  constraint settings_dedup_window_is_positive CHECK ((dedup_window > '00:00:00'::interval))
  constraint settings_environment_is_short CHECK (((length(environment) >= 1) AND (length(environment) <= 100)))
  constraint settings_is_one_row CHECK (is_only)
  constraint settings_max_delivery_is_sane CHECK (((max_delivery >= 1024) AND (max_delivery <= 10485760)))
  constraint settings_max_payload_is_sane CHECK (((max_payload >= 1024) AND (max_payload <= 67108864)))
  constraint settings_pkey PRIMARY KEY (is_only)
  constraint settings_retention_is_positive CHECK ((retention > '00:00:00'::interval))
  CREATE UNIQUE INDEX settings_pkey ON deed.settings USING btree (is_only)
  policy settings_admin for * to deed_admin using true check true
  policy settings_app for r to deed_app using true
  policy settings_owner for * to owner using true check true
  policy settings_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
  grant update (dedup_window) to deed_admin
  grant update (max_delivery) to deed_admin
  grant update (max_payload) to deed_admin
  grant update (retention) to deed_admin
  grant update (strict_topics) to deed_admin
table deed.shut_logins rls=true forced=true
  column login text not null
  column shut_at timestamp with time zone not null default clock_timestamp()
  constraint shut_logins_login_is_short CHECK (((length(login) >= 1) AND (length(login) <= 63)))
  constraint shut_logins_pkey PRIMARY KEY (login)
  CREATE UNIQUE INDEX shut_logins_pkey ON deed.shut_logins USING btree (login)
  policy shut_logins_admin for r to deed_admin using true
  policy shut_logins_owner for * to owner using true check true
  policy shut_logins_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.sink_pauses rls=true forced=true with fillfactor=50
  column subscription integer not null
  column worker uuid not null
  column name text not null
  column why text not null
  column since timestamp with time zone not null
  column seen_until timestamp with time zone not null
  constraint sink_pauses_pkey PRIMARY KEY (subscription, worker)
  CREATE UNIQUE INDEX sink_pauses_pkey ON deed.sink_pauses USING btree (subscription, worker)
  policy sink_pauses_admin for r to deed_admin using true
  policy sink_pauses_owner for * to owner using true check true
  policy sink_pauses_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.soft_bounces rls=true forced=true
  column delivery_id uuid not null
  column tenant_id uuid not null
  column channel text not null
  column address text not null
  column at timestamp with time zone not null
  column reached boolean not null default false
  constraint soft_bounces_pkey PRIMARY KEY (delivery_id, address)
  CREATE INDEX soft_bounces_address_idx ON deed.soft_bounces USING btree (tenant_id, channel, address)
  CREATE INDEX soft_bounces_at_idx ON deed.soft_bounces USING btree (at)
  CREATE UNIQUE INDEX soft_bounces_pkey ON deed.soft_bounces USING btree (delivery_id, address)
  policy soft_bounces_admin for r to deed_admin using true
  policy soft_bounces_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy soft_bounces_owner for * to owner using true check true
  policy soft_bounces_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
sequence deed.subscription_seq
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
  column list_version bigint
  column since bigint
  column since_window bigint
  column read_window bigint
  column read_since bigint
  column created_at timestamp with time zone not null default clock_timestamp()
  column since_lane integer
  column door_until timestamp with time zone
  constraint subscriptions_backoff_is_sane CHECK (((backoff >= '00:00:00.001'::interval) AND (backoff <= '01:00:00'::interval)))
  constraint subscriptions_lease_is_sane CHECK (((lease >= '00:00:01'::interval) AND (lease <= '24:00:00'::interval)))
  constraint subscriptions_max_attempts_is_positive CHECK ((max_attempts >= 1))
  constraint subscriptions_name_is_valid CHECK ((name ~ '^[A-Za-z0-9._-]{1,100}$'::text))
  constraint subscriptions_pkey PRIMARY KEY (id)
  constraint subscriptions_start_is_known CHECK ((start = ANY (ARRAY['beginning'::text, 'now'::text])))
  constraint subscriptions_stream_has_beginning CHECK (((since IS NULL) = (since_window IS NULL)))
  constraint subscriptions_topic_name_key UNIQUE (topic, name)
  CREATE UNIQUE INDEX subscriptions_door_key ON deed.subscriptions USING btree (topic) WHERE door
  CREATE UNIQUE INDEX subscriptions_pkey ON deed.subscriptions USING btree (id)
  CREATE UNIQUE INDEX subscriptions_topic_name_key ON deed.subscriptions USING btree (topic, name)
  policy subscriptions_admin for r to deed_admin using true
  policy subscriptions_owner for * to owner using true check true
  policy subscriptions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.suppressions rls=true forced=true
  column tenant_id uuid not null
  column channel text not null
  column address text not null
  column reason text not null
  column actor text not null
  column created_at timestamp with time zone not null
  column purpose text not null default ''::text
  column expires_at timestamp with time zone
  column by_consent boolean not null default false
  column kept_until timestamp with time zone
  column kept_reason text
  column kept_actor text
  constraint suppressions_address_is_folded CHECK (((address = lower(address)) AND ((length(address) >= 1) AND (length(address) <= 2000))))
  constraint suppressions_channel_is_known CHECK ((channel = ANY (ARRAY['email'::text, 'sms'::text, 'voice'::text, 'social'::text, 'chat'::text, 'webhook'::text])))
  constraint suppressions_end_in_a_year CHECK ((expires_at < '10000-01-01 00:00:00+00'::timestamp with time zone))
  constraint suppressions_expiry_is_finite CHECK (isfinite(expires_at))
  constraint suppressions_kept_is_whole CHECK (((num_nulls(kept_until, kept_reason, kept_actor) = ANY (ARRAY[0, 3])) AND ((kept_until IS NULL) OR by_consent)))
  constraint suppressions_pkey PRIMARY KEY (tenant_id, channel, address, purpose)
  constraint suppressions_purpose_is_named CHECK (((purpose = '*'::text) OR (purpose ~ '^([A-Za-z0-9._-]{1,100})?$'::text)))
  constraint suppressions_reason_is_short CHECK (((length(reason) >= 1) AND (length(reason) <= 200)))
  constraint suppressions_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE INDEX suppressions_end_idx ON deed.suppressions USING btree (expires_at) WHERE (expires_at IS NOT NULL)
  CREATE INDEX suppressions_newest_idx ON deed.suppressions USING btree (created_at, tenant_id, channel, address)
  CREATE INDEX suppressions_of_tenant_idx ON deed.suppressions USING btree (tenant_id, created_at, channel, address)
  CREATE UNIQUE INDEX suppressions_pkey ON deed.suppressions USING btree (tenant_id, channel, address, purpose)
  policy suppressions_admin for r to deed_admin using true
  policy suppressions_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy suppressions_owner for * to owner using true check true
  policy suppressions_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
table deed.tallied rls=true forced=true with fillfactor=50
  column is_only boolean not null default true
  column upto_n bigint not null default 0
  column noted_n bigint not null default 0
  column noted_xid xid8
  constraint tallied_goes_forward CHECK ((noted_n >= upto_n))
  constraint tallied_is_one_row CHECK (is_only)
  constraint tallied_pkey PRIMARY KEY (is_only)
  CREATE UNIQUE INDEX tallied_pkey ON deed.tallied USING btree (is_only)
  policy tallied_admin for r to deed_admin using true
  policy tallied_owner for * to owner using true check true
  policy tallied_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.tenant_logins rls=true forced=true
  column login text not null
  column tenant_id uuid not null
  column created_at timestamp with time zone not null default clock_timestamp()
  constraint tenant_logins_login_is_short CHECK (((length(login) >= 1) AND (length(login) <= 63)))
  constraint tenant_logins_pkey PRIMARY KEY (login, tenant_id)
  constraint tenant_logins_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES deed.tenants(tenant_id)
  CREATE UNIQUE INDEX tenant_logins_pkey ON deed.tenant_logins USING btree (login, tenant_id)
  policy tenant_logins_admin for r to deed_admin using true
  policy tenant_logins_owner for * to owner using true check true
  policy tenant_logins_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.tenant_removals rls=true forced=true
  column tenant_id uuid not null
  column name text not null
  column actor text not null
  column reason text not null
  column asked_at timestamp with time zone not null default clock_timestamp()
  column made_by xid8 not null
  column upto xid8
  column system_identifier bigint
  column stage integer not null default 0
  column is_final boolean not null default false
  column at_sub integer not null default '-1'::integer
  column at_id bigint not null default 0
  column left_some boolean not null default false
  column waits boolean not null default false
  column read_window bigint
  column taken jsonb not null default '{}'::jsonb
  column finished_at timestamp with time zone
  constraint tenant_removals_actor_is_short CHECK (((length(actor) >= 1) AND (length(actor) <= 200)))
  constraint tenant_removals_pkey PRIMARY KEY (tenant_id)
  constraint tenant_removals_reason_is_short CHECK (((length(reason) >= 1) AND (length(reason) <= 2000)))
  constraint tenant_removals_stage_is_count CHECK ((stage >= 0))
  CREATE INDEX tenant_removals_asked_idx ON deed.tenant_removals USING btree (asked_at, tenant_id)
  CREATE INDEX tenant_removals_open_idx ON deed.tenant_removals USING btree (tenant_id) WHERE (finished_at IS NULL)
  CREATE UNIQUE INDEX tenant_removals_pkey ON deed.tenant_removals USING btree (tenant_id)
  policy tenant_removals_admin for r to deed_admin using true
  policy tenant_removals_owner for * to owner using true check true
  policy tenant_removals_worker for r to deed_worker using true
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
  policy tenants_app for r to deed_app using (tenant_id = ( SELECT deed.current_tenant() AS current_tenant))
  policy tenants_owner for * to owner using true check true
  policy tenants_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_app
  grant select to deed_worker
sequence deed.topic_seq
table deed.topics rls=true forced=true
  column topic text not null
  column slot_base integer not null
  column mode text not null default 'queue'::text
  column lanes integer not null default 4
  column ordered boolean not null default true
  column retention interval not null default '7 days'::interval
  column subscriptions integer[] not null default '{}'::integer[]
  column created_at timestamp with time zone not null default clock_timestamp()
  column list_version bigint not null
  column own boolean not null default false
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
sequence deed.turn_seq
table deed.unmatched_events rls=true forced=true
  column n bigint not null identity always
  column provider text not null
  column kind text not null
  column account text not null
  column tenants uuid[]
  column event text not null
  column event_id text not null
  column message_id text not null
  column at timestamp with time zone not null
  column code text
  column received_at timestamp with time zone not null
  column tried_at timestamp with time zone not null
  constraint unmatched_events_once UNIQUE (provider, event_id, event)
  constraint unmatched_events_pkey PRIMARY KEY (n)
  constraint unmatched_events_texts_are_short CHECK (((length(event_id) <= 255) AND (length(message_id) <= 500) AND (length(code) <= 100)))
  CREATE INDEX unmatched_events_tried_idx ON deed.unmatched_events USING btree (tried_at)
  CREATE UNIQUE INDEX unmatched_events_once ON deed.unmatched_events USING btree (provider, event_id, event)
  CREATE UNIQUE INDEX unmatched_events_pkey ON deed.unmatched_events USING btree (n)
  policy unmatched_events_admin for r to deed_admin using true
  policy unmatched_events_owner for * to owner using true check true
  policy unmatched_events_worker for r to deed_worker using true
  grant select to deed_admin
  grant select to deed_worker
table deed.window_lock rls=true forced=true
  column none boolean
  constraint window_lock_stays_empty CHECK (false)
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
function accept_messages(p_source text, p_ids text[], p_kinds text[], p_senders text[], p_reply_tos text[], p_texts text[], p_bodies text[], p_correlation_id text, p_unknown text, p_tenant uuid, p_worker text, p_also_of integer[] DEFAULT '{}'::integer[], p_also_kinds text[] DEFAULT '{}'::text[], p_also_values text[] DEFAULT '{}'::text[]) returns TABLE(n integer, id uuid, status text, did text, correlation_id text) security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, lock_timeout=500ms body 1a35e98b3700a2a5642ae2acb6197484 grant to deed_worker
function add_audience_members(p_audience uuid, p_after bigint, p_addresses text[], p_data jsonb[] DEFAULT NULL::jsonb[], p_zones text[] DEFAULT NULL::text[], p_contacts uuid[] DEFAULT NULL::uuid[], p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, p_rows_read bigint DEFAULT NULL::bigint, p_left_out bigint DEFAULT NULL::bigint) returns bigint security definer set search_path=pg_catalog, pg_temp, jit=off, work_mem=64MB body e62a4a8d5ef3c7a580ce27ad350353ce grant to deed_admin, deed_app, deed_worker
function add_identity(p_contact uuid, p_type text, p_value text, p_verified boolean DEFAULT false, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns text security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 00c9f3718aa54fd27c4c01293143873b grant to deed_admin, deed_app, deed_worker
function add_jobs(p_run uuid, p_actor text) returns void set search_path=pg_catalog, pg_temp body 6f573207005c9de6e1dece6aeb1afb56
function add_tenant(p_tenant uuid, p_name text) returns void security definer set search_path=pg_catalog, pg_temp body 1fab044c4404fe2eba014273aca64424 grant to deed_admin
function address_domain(p_channel text, p_folded text) returns text body inline grant to deed_admin, deed_app, deed_worker
function address_mark(p_tenant uuid, p_channel text, p_address text) returns text security definer set search_path=pg_catalog, pg_temp body 41b4e861f34794c360d10add71cb0fc0 grant to deed_admin, deed_app, deed_worker
function adopt(p_pack text, p_limit integer DEFAULT 500) returns integer set search_path=pg_catalog, pg_temp body e22a1c1d08049c9518837415bf536289
function adopt_cluster(p_reason text, p_by text DEFAULT NULL::text, p_environment text DEFAULT NULL::text) returns text security definer set search_path=pg_catalog, pg_temp body c39af25a099645d3a33d3954b95faa6c grant to deed_admin
function after_quiet(p_at timestamp with time zone, p_quiet text, p_zone text) returns timestamp with time zone set search_path=pg_catalog, pg_temp body b9fbc195421f8ee9bcfe22035ddff2ae
function announce_steps(p_runs uuid[], p_places integer[], p_claims bigint[], p_started_at timestamp with time zone[], p_adapter text DEFAULT NULL::text, p_attempts integer[] DEFAULT NULL::integer[], p_engine_attempts integer[] DEFAULT NULL::integer[]) returns SETOF integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body e4f75c204f56ee1434b29f059af1dfb0 grant to deed_worker
function append_events(p_runs uuid[], p_types text[], p_steps text[], p_attempts integer[], p_engine_attempts integer[] DEFAULT NULL::integer[], p_emitted_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_data jsonb[] DEFAULT NULL::jsonb[], p_signals uuid[] DEFAULT NULL::uuid[], p_parents uuid[] DEFAULT NULL::uuid[], p_adapter text DEFAULT NULL::text) returns TABLE(ordinal integer, run_seq bigint, event_id uuid, repeated boolean) security definer set search_path=pg_catalog, pg_temp body 13206dd52160cb80bd19334420bb236d grant to deed_worker
function apply_consents(p_tenant uuid, p_contacts uuid[], p_actor text) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body e6af091131c9ad496c808157acbbd777
function apply_events(p_ids uuid[], p_events text[], p_event_ids text[], p_message_ids text[], p_addresses text[], p_ats timestamp with time zone[], p_reasons text[], p_codes text[], p_actor text) returns jsonb set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 5278cbb1489d43e65f805feb4d14c690
function approve_run(p_run uuid, p_reason text, p_by text DEFAULT NULL::text) returns void security definer set search_path=pg_catalog, pg_temp, jit=off body c53ed08b782097396bf47bba04f48c39 grant to deed_admin
function are_merged_twice(p_job uuid) returns boolean set search_path=pg_catalog, pg_temp body c4abfc05ed5adde3539a228142c9641f
function ask_purge(p_id bigint, p_topic text) returns boolean security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off body 0eb5025a7a14660ddc19a6dbbc2b53d8 grant to deed_admin, deed_worker
function attempt(p_ids uuid[], p_claims bigint[], p_requests bytea[], p_window interval, p_lease interval, p_worker text, p_kind text DEFAULT NULL::text, p_account text DEFAULT ''::text, p_sandbox boolean DEFAULT false, p_batches uuid[] DEFAULT NULL::uuid[], p_made timestamp with time zone[] DEFAULT NULL::timestamp with time zone[]) returns TABLE(id uuid, status text, attempts integer, repeat_safe_until timestamp with time zone, why text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body e9ffadc16e5af16f38ee7a389e5cbd6f grant to deed_worker
function attend(p_subscription integer, p_worker text, p_limit integer, p_slots_from integer[], p_slots_upto integer[], p_lease interval, p_run integer DEFAULT 100) returns TABLE(head bigint, key_hash bigint, id bigint, claim bigint, attempts integer, lost_claims integer, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 9867f6e09fbad8a09b85479c472c529a grant to deed_worker
function audit_passed(p_writers text[]) returns boolean security definer set search_path=pg_catalog, pg_temp body 988adf32ddc00f0541fdee7ff16e076b grant to deed_admin, deed_worker
function audit_point(OUT upto bigint, OUT writers text[]) returns record security definer set search_path=pg_catalog, pg_temp body d721c06cf277dcb7cc0b03cda6a813b2 grant to deed_admin, deed_worker
function audit_unsealed(p_upto bigint, p_limit integer) returns TABLE(n bigint, at timestamp with time zone, tenant_id uuid, run_id uuid, actor text, login text, action text, subject_type text, subject_id text, from_status text, to_status text, reason text, affected bigint, details jsonb) security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body b74f3a10f9b26e90e6703f018b30449f grant to deed_admin, deed_worker
function backfill(p_subscription integer, p_limit integer DEFAULT 1000) returns TABLE(added integer, finished boolean) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body b4b73e39d68d063fcaf5ce9fba6b8953 grant to deed_worker
function batch_stands(p_provider text, p_batch uuid) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 8bb63ffd5d9b5c0405b4f9eb6589a14b
function begin_moving(p_n integer, p_snap pg_snapshot) returns void set search_path=pg_catalog, pg_temp body e6270501a61ba53d7505b576a1e67be4
function begin_requests(p_plan_ids text[], p_plan_versions text[], p_request_ids text[], p_inputs jsonb[], p_projects text[], p_environments text[], p_originals uuid[], p_parents uuid[], p_parent_steps text[], p_tenants uuid[], p_queues text[] DEFAULT NULL::text[], p_claim bigint DEFAULT NULL::bigint, p_worker text DEFAULT NULL::text, p_limit integer DEFAULT 0, p_lease interval DEFAULT NULL::interval) returns TABLE(ordinal integer, run_id uuid, created boolean, status text, waits boolean, place integer, claim bigint, tenant_id uuid, step_id text, at_most_once boolean, plan_id text, plan_version text, plan_sha256 bytea, input jsonb) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 5ca8e78e6fd05c973ff2c0e1c3c0c9eb
function begin_step(p_run uuid, p_place integer, p_claim bigint) returns text security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s, jit=off body af28be8899435f1ab2c2b2bcf650d036 grant to deed_worker
function bind_login(p_login text, p_tenants uuid[], p_reason text, p_actor text) returns boolean security definer set search_path=pg_catalog, pg_temp body cfec959189ca5dcd2822475c85e31e29 grant to deed_admin
function blocked_keys(p_topic text DEFAULT NULL::text, p_limit integer DEFAULT 100) returns TABLE(topic text, subscription text, key text, tenant_id uuid, id bigint, message_id uuid, attempts integer, dead boolean, due timestamp with time zone, last_error text, since timestamp with time zone, behind bigint) set search_path=pg_catalog, pg_temp, jit=off body 1e6d8f5aa2de9f76dc35fa60806dc7b9 grant to deed_admin, deed_worker
function break_batches(p_provider text, p_all boolean DEFAULT false) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body e15b12f1a639766e6c2df97a8b776329
function campaigns_served() returns boolean security definer set search_path=pg_catalog, pg_temp body e4b8652eead85dbd4cc3aebced8c210c grant to deed_admin, deed_app, deed_worker
function cancel_redrive(p_request text, p_reason text DEFAULT NULL::text, p_by text DEFAULT NULL::text) returns bigint security definer set search_path=pg_catalog, pg_temp body 2ba5cb74a8222c02e820d6b169de673c grant to deed_admin
function cancel_run(p_run uuid, p_reason text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns bigint security definer set search_path=pg_catalog, pg_temp body 4105abcdcb02d46d3ebbb1346e215740 grant to deed_admin, deed_app
function cells_of(p_options jsonb, p_request text, OUT names text[], OUT share integer, OUT salt text) returns record set search_path=pg_catalog, pg_temp body 92be5122ad96693c892a31a4b5626f3e grant to deed_admin, deed_app, deed_worker
function check_address(p_channel text, p_address text, OUT folded text, OUT problem text) returns record set search_path=pg_catalog, pg_temp body 9bd6588cc403c9013256436fe40f1db9 grant to deed_admin, deed_app, deed_worker
function check_campaign() returns trigger set search_path=pg_catalog, pg_temp body ab75dde631db7b2efc875ba81a335f11
function check_identity(p_type text, p_value text, OUT folded text, OUT problem text) returns record set search_path=pg_catalog, pg_temp body 0447ae65d9d0adcfc9e18286bc84d8fb grant to deed_admin, deed_app, deed_worker
function check_lists(p_topics text[]) returns void security definer set search_path=pg_catalog, pg_temp, lock_timeout=1ms body 86d7d8d3d6b9077d8a310c538465aa4b
function check_message() returns trigger set search_path=pg_catalog, pg_temp body bed507b6838124304585db74e1bdf3cf
function check_removal(p_topic text, p_reason text, p_by text) returns void set search_path=pg_catalog, pg_temp body 011c817bb2348556817c35fd932f1777
function check_tenant_removal(p_call text, p_tenant uuid) returns void set search_path=pg_catalog, pg_temp body dbd4702d2a94eafc442955d0e2b74465
function check_tenants(p_tenants uuid[]) returns void security definer set search_path=pg_catalog, pg_temp, lock_timeout=1ms body df98db905ddf305f97cc27d3e24687d4
function check_topic(p_topic text, p_mode text, p_lanes integer, p_retention interval) returns void set search_path=pg_catalog, pg_temp body 2b97238064e789959c41a8ceb631ff60 grant to deed_admin, deed_worker
function check_transition() returns trigger set search_path=pg_catalog, pg_temp body e325ff172ea43fc49cbffc18c32786f3
function choose_winner(p_run uuid, p_variant text, p_reason text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns boolean security definer set search_path=pg_catalog, pg_temp body e052b602fb2f07c934524526a7952625 grant to deed_admin, deed_app
function claim(p_topic text, p_worker text, p_limit integer DEFAULT 100, p_subscription text DEFAULT 'default'::text, p_tenant uuid DEFAULT NULL::uuid, p_lease interval DEFAULT NULL::interval, p_floor timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) returns TABLE(subscription integer, id bigint, message_id uuid, claim bigint, attempts integer, lost_claims integer, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone, ord timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off body c1b4440654492d11e3cba510ce9ee48d grant to deed_worker
function claim_deliveries(p_provider text, p_worker text, p_limit integer, p_lease interval, p_lanes text[] DEFAULT '{}'::text[], p_rooms integer[] DEFAULT '{}'::integer[], p_room integer DEFAULT NULL::integer, p_bytes bigint DEFAULT NULL::bigint, p_places jsonb DEFAULT NULL::jsonb, p_max_attempts integer DEFAULT 5, p_batch integer DEFAULT 1, p_runs boolean DEFAULT false) returns TABLE(id uuid, claim bigint, tenant_id uuid, workspace_id uuid, idempotency_key bytea, channel text, lane text, recipient text, recipient_id text, payload jsonb, request bytea, guarantee text, attempts integer, correlation_id text, channel_message_id uuid, lost_claims integer, taken_over boolean, walk jsonb, call integer, purpose text, contact_id uuid, run_id uuid) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off body 5a00e7f5926326a10b85b8dc47dcf052 grant to deed_worker
function claim_doors(p_worker text, p_limit integer, p_tenant uuid) returns TABLE(id bigint, attempts integer, tenant_id uuid, topic text, key text, aggregate_type text, content_type text, payload bytea, created_at timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off body 6d2e1191b4f0dbfd8bdafc7fa9f243ec grant to deed_worker
function claim_doubts(p_provider text, p_worker text, p_limit integer, p_lease interval, p_has_key boolean, p_look_up boolean, p_delay interval DEFAULT '00:00:00'::interval, p_patience interval DEFAULT '01:00:00'::interval, p_max_attempts integer DEFAULT 5, p_kind text DEFAULT NULL::text, p_account text DEFAULT ''::text, p_sandbox boolean DEFAULT false, p_lanes text[] DEFAULT '{}'::text[], p_rooms integer[] DEFAULT '{}'::integer[], p_room integer DEFAULT NULL::integer, p_bytes bigint DEFAULT NULL::bigint, p_places jsonb DEFAULT NULL::jsonb, p_batches boolean DEFAULT NULL::boolean, p_base interval DEFAULT '00:00:05'::interval, p_jitter double precision[] DEFAULT '{0.5,1}'::double precision[]) returns TABLE(id uuid, claim bigint, tenant_id uuid, workspace_id uuid, idempotency_key bytea, channel text, lane text, recipient text, recipient_id text, payload jsonb, request bytea, guarantee text, attempts integer, correlation_id text, channel_message_id uuid, action text, called_at timestamp with time zone, walk jsonb, batch_id uuid, batch_place integer, batch_size integer) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body bc7d5bf935398f36c3369572cafe2928 grant to deed_worker
function claim_external(p_queue text, p_worker text, p_limit integer DEFAULT 1, p_lease interval DEFAULT '00:00:30'::interval, p_tenant uuid DEFAULT NULL::uuid) returns TABLE(run_id uuid, step_id text, claim bigint, tenant_id uuid, plan_id text, plan_version text, environment text, attempt integer, engine_attempt integer, input jsonb, secrets jsonb, idempotency_key text, lease_until timestamp with time zone, deadline timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 617882d194a738e61f82cc26ebe5ffd3 grant to deed_worker
function claim_messages(p_source text, p_limit integer, p_lease interval, p_most integer, p_worker text, p_tenant uuid DEFAULT NULL::uuid) returns TABLE(id uuid, claim bigint, tenant_id uuid, source text, platform_message_id text, contact_id uuid, kind text, sender text, reply_to text, text text, body text, attempts integer, correlation_id text, received_at timestamp with time zone, held boolean) security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off body d82f02cdb66e69fe5ac4dee58ad862fe grant to deed_worker
function claim_number() returns bigint security definer set search_path=pg_catalog, pg_temp body c6384634e221566e371131ec55b1b2a2
function claim_queued_jobs(p_worker text, p_limit integer, p_lease interval DEFAULT '00:05:00'::interval) returns TABLE(id uuid, run_id uuid, tenant_id uuid, claim bigint) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 0bcd469b86d8f3990d5a9e5a65fc3272 grant to deed_worker
function claim_steps(p_queues text[], p_worker text, p_limit integer, p_lease interval DEFAULT '00:00:30'::interval, p_after uuid DEFAULT NULL::uuid, p_engine text DEFAULT 'local'::text, p_suspects boolean DEFAULT true) returns TABLE(run_id uuid, place integer, claim bigint, tenant_id uuid, step_id text, attempt integer, engine_attempt integer, lost_claims integer, key_n integer, at_most_once boolean, parked boolean, verdict text, begun_at timestamp with time zone, plan_id text, plan_version text, plan_sha256 bytea, input jsonb) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body a424a3ec6f735c0cd482bc693bb4eb20 grant to deed_worker
function confirm_consent(p_contact uuid, p_channel text, p_purpose text, p_evidence jsonb DEFAULT NULL::jsonb, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns boolean security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 42bfe4a1cf96d4151243a2bf59f45082 grant to deed_admin, deed_app, deed_worker
function consents_of(p_contacts uuid[]) returns TABLE(contact_id uuid, channel text, purpose text, state text, n bigint, at timestamp with time zone, expires_at timestamp with time zone) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body inline grant to deed_admin, deed_app, deed_worker
function contact_of(p_tenant uuid, p_id uuid) returns uuid body inline grant to deed_admin, deed_app, deed_worker
function content_problems(p_contents uuid[], p_channel text, p_purpose text) returns text[] set search_path=pg_catalog, pg_temp body cbad1d68ba0bf5083bb5c7f15c61bcf0
function count_job(p_run uuid, p_job uuid, OUT sent integer, OUT skipped integer, OUT missed integer, OUT failed integer, OUT dead integer, OUT queued integer, OUT sending integer, OUT in_doubt integer, OUT held integer, OUT reasons jsonb) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body f7cba255f173a0a094725cd0d3fc7458 grant to deed_admin, deed_app, deed_worker
function count_pending(p_most integer) returns TABLE(subscription integer, topic text, pending bigint, due bigint, claimed bigint, parked bigint, blocked_keys bigint, dead bigint, oldest timestamp with time zone, at_least boolean, dead_at_least boolean) set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 0c4232f6dcaf1b3bc191651bd678868d grant to deed_admin, deed_worker
function count_removal(p_topic text, p_name text DEFAULT NULL::text) returns TABLE(subscription text, mode text, door boolean, waiting bigint, claimed bigint, aside bigint, dead bigint, blocked_keys bigint, unread bigint, at_least boolean, workers text[]) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off body 38bc7652c376fb8780d0d81980b6f9ad grant to deed_admin
function count_tenant(p_tenant uuid) returns TABLE(what text, amount bigint, stays boolean) security definer set search_path=pg_catalog, pg_temp, jit=off body ecca654ea434d7b4e0b08af2fb5a6a2b grant to deed_admin
function count_unread(p_subscriptions integer[], p_most integer, p_each_lane boolean) returns TABLE(subscription integer, behind bigint, oldest timestamp with time zone, at_least boolean) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body f2369a5b921df20be162fd2b7a7f0a39 grant to deed_admin, deed_worker
function count_variants(p_run uuid, OUT winner text, OUT details jsonb) returns record set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body 23cd0b4bf734c1a4845ac2291d35601b
function counted_time(p_run uuid, p_from timestamp with time zone, p_upto timestamp with time zone) returns interval set search_path=pg_catalog, pg_temp body 274ccee27d7ddcb480d00c162c1bde82
function create_run(p_plan_id text, p_plan_version text, p_request_id text, p_input jsonb DEFAULT '{}'::jsonb, p_project text DEFAULT 'default'::text, p_environment text DEFAULT 'default'::text, p_plan_sha256 bytea DEFAULT NULL::bytea, p_engine text DEFAULT 'local'::text, p_original_run_id uuid DEFAULT NULL::uuid, p_parent_run_id uuid DEFAULT NULL::uuid, p_parent_step_id text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, OUT run_id uuid, OUT created boolean) returns record security definer set search_path=pg_catalog, pg_temp body 1e48b1191c1631242ecf450d1ae487fa grant to deed_admin, deed_app, deed_worker
function create_runs(p_tenants uuid[], p_plan_ids text[], p_plan_versions text[], p_request_ids text[], p_inputs jsonb[], p_projects text[], p_environments text[], p_plan_sha256s bytea[], p_engines text[], p_originals uuid[], p_parents uuid[], p_parent_steps text[], p_begun bytea[]) returns TABLE(ordinal integer, run_id uuid, created boolean, begun_at timestamp with time zone) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body f3844820473d83ea06590dc2910c6f71
function current_tenant() returns uuid security definer set search_path=pg_catalog, pg_temp body 98c58549eda9a0c2f4fb09a77877ca2d grant to deed_admin, deed_app, deed_worker
function dead_letters(p_topic text DEFAULT NULL::text, p_subscription text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_type text DEFAULT NULL::text, p_error text DEFAULT NULL::text, p_ids bigint[] DEFAULT NULL::bigint[], p_older interval DEFAULT NULL::interval, p_newer interval DEFAULT NULL::interval, p_at timestamp with time zone DEFAULT now()) returns TABLE(subscription integer, id bigint, topic text, name text, key text, type text, tenant_id uuid, created_at timestamp with time zone, attempts integer, lost_claims integer, dead_at timestamp with time zone, last_error text) body inline grant to deed_admin, deed_worker
function decide_winners(p_limit integer, p_worker text) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 38d90df40c57b97454f858a50e529bff grant to deed_worker
function declare_topic(p_topic text, p_mode text DEFAULT NULL::text, p_lanes integer DEFAULT NULL::integer, p_ordered boolean DEFAULT NULL::boolean, p_retention interval DEFAULT NULL::interval) returns TABLE(made boolean, mode text, lanes integer, ordered boolean, retention interval) security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s body e6a99c43ff85ce748fc55518b6495e58 grant to deed_admin, deed_worker
function delivery_contents(p_id uuid, p_claim bigint) returns TABLE(sha256 text, bytes bytea, type text) security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body 8355f276c4eab34c8b4707dcebe3e8e0 grant to deed_worker
function deploy_campaign(p_campaign_id uuid, p_audience_id uuid, p_request_id text, p_channel text, p_scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, p_options jsonb DEFAULT '{}'::jsonb, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, OUT run_id uuid, OUT created boolean) returns record security definer set search_path=pg_catalog, pg_temp, jit=off body 77024933159fcf63f67777015d2f97b0 grant to deed_admin, deed_app, deed_worker
function discard(p_id bigint, p_reason text, p_subscription text DEFAULT NULL::text, p_by text DEFAULT NULL::text) returns integer security definer set search_path=pg_catalog, pg_temp body d326c6b2e631efc7bbb18ccc664343e5 grant to deed_admin
function domain_ascii(p_domain text) returns text set search_path=pg_catalog, pg_temp body 7c4d52b4ef1a3a151cf5e6562f434820 grant to deed_admin, deed_app, deed_worker
function doors() returns integer[] security definer set search_path=pg_catalog, pg_temp body 26c8c12e98b116c94370359da06f2edd grant to deed_admin, deed_app, deed_worker
function drop_contents(p_places tid[], p_actor text, p_reason text) returns integer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body 9b87713d1b2af013f605b3c264f9aa45
function drop_partition(p_n integer) returns text set search_path=pg_catalog, pg_temp, lock_timeout=20ms body a8d40904f52d4528e86c49e8fcfe8a9f
function due_lanes(p_provider text, p_status text, p_tenant uuid, p_run uuid, p_from text, p_to text, p_limit integer) returns text[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 3b821b3140060f41460c144ee7d280e2
function due_runs(p_provider text, p_status text, p_tenant uuid, p_from uuid, p_to uuid, p_limit integer, p_held uuid[] DEFAULT '{}'::uuid[], p_marks jsonb DEFAULT NULL::jsonb) returns uuid[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 71116e78e03b33da380f16ebd6085d82
function due_tenants(p_provider text, p_status text, p_from uuid, p_to uuid, p_limit integer, p_known uuid[] DEFAULT '{}'::uuid[]) returns uuid[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body ba8aca1bfb501f273ccd3c9bc2a917eb
function due_unheld(p_providers text[]) returns boolean security definer set search_path=pg_catalog, pg_temp body 099eb2728e87e46cf5a3761b802aa65d grant to deed_worker
function end_empty(p_subscriptions integer[], p_ids bigint[], p_at timestamp with time zone, p_worker text) returns void security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2fc9545f63b09aec54a069601847c95e
function end_external(p_run uuid, p_step text, p_claim bigint, p_outcome text, p_data jsonb, p_not_done boolean DEFAULT false) returns text security definer set search_path=pg_catalog, pg_temp, jit=off body 653e34f9452802705bb881d05c6b56d8
function end_lanes(p_subscription integer) returns void set search_path=pg_catalog, pg_temp body b5349277a130b987c53f4932625cc744
function end_queued(p_ids uuid[], p_status text, p_reasons text[], p_action text, p_worker text) returns TABLE(id uuid, tenant_id uuid, provider text, channel text, attempts integer, correlation_id text, channel_message_id uuid, reason text) security definer set search_path=pg_catalog, pg_temp, jit=off body 1dc3ddb4c5016e7dda362a78020e92c3
function end_runs(p_runs uuid[], p_worker text) returns void set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body eea9a7eab6ce0ef3f44851de8ac132f4
function end_stream(p_topic text) returns void security definer set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body e59b8d928c53402afc480501f19260d4
function erase_contact(p_id uuid, p_reason text, p_actor text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_suppress boolean DEFAULT false, p_exported boolean DEFAULT false) returns bigint security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body f8f12fc0cefe4e0ea7bc19881279b336 grant to deed_admin, deed_app
function erase_deliveries(p_ids uuid[], p_actor text, p_in_hand boolean DEFAULT true) returns TABLE(id uuid, did text) set search_path=pg_catalog, pg_temp, jit=off body f76120dc3e62797c1e61190b88844125
function erase_messages(p_contacts uuid[], p_actor text) returns void set search_path=pg_catalog, pg_temp, jit=off body 0f68031ece9af98f2014d69b9d309869
function erase_step(p_limit integer, p_worker text) returns bigint security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body 4a35f3f685258e8d8d2583fcbc7e6eaa grant to deed_worker
function erased_message_id(p_message_id text) returns text set search_path=pg_catalog, pg_temp body a065290f608639a0253a662c7ef01b4e grant to deed_admin, deed_app, deed_worker
function event_key(p_run uuid, p_subject text, p_attempt integer, p_type text, p_version text) returns bytea body inline grant to deed_admin, deed_app, deed_worker
function event_message(p_run text, p_seq bigint, p_event_id uuid, p_type text, p_step text, p_attempt integer, p_engine_attempt integer, p_key bytea, p_emitted_at timestamp with time zone, p_rest text, p_signal uuid, p_parent uuid, p_engine_run_ref jsonb, p_data jsonb) returns bytea body inline
function expand_job(p_job uuid, p_claim bigint, p_worker text, OUT state text, OUT made bigint) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off, lock_timeout=2s, work_mem=32MB body 512696938fd71708f7fa65b1b8c21002 grant to deed_worker
function expire_deliveries(p_limit integer, p_worker text) returns TABLE(id uuid, tenant_id uuid, provider text, channel text, attempts integer, correlation_id text, channel_message_id uuid, reason text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body b1c0f1358b88dec0db20721017c7747f grant to deed_worker
function expire_suppressions(p_limit integer, p_worker text) returns bigint security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body 7b46162a8e8bc4ce32d0f071259f5374 grant to deed_worker
function export_erasures(p_limit integer, p_removed boolean DEFAULT true) returns TABLE(n bigint, tenant_id uuid, contact_id uuid, names uuid[], reason text, actor text, at timestamp with time zone, suppressed boolean) security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body 9d5e27e6f31ce8c567a0c17847502de4 grant to deed_worker
function extend(p_subscription integer, p_claim bigint, p_ids bigint[], p_lease interval DEFAULT NULL::interval) returns bigint[] security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 8196a4bed030035cdf3152eb28562113 grant to deed_worker
function extend_deliveries(p_ids uuid[], p_claims bigint[], p_lease interval) returns uuid[] security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 135c676281ecb56bdd28b9a2efffda24 grant to deed_worker
function extend_external(p_run uuid, p_step text, p_claim bigint, p_lease interval DEFAULT '00:00:30'::interval) returns timestamp with time zone security definer set search_path=pg_catalog, pg_temp, jit=off body f925992d9c803e2f4fec331892c8c9c0 grant to deed_worker
function extend_messages(p_ids uuid[], p_claims bigint[], p_lease interval) returns SETOF uuid security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off body dfeb298dee49d9c455900f73917d391e grant to deed_worker
function extend_steps(p_runs uuid[], p_places integer[], p_claims bigint[], p_lease interval DEFAULT '00:00:30'::interval) returns SETOF integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body a37a75ecd5249744b2c6da525c0ff656 grant to deed_worker
function fail(p_subscription integer, p_claim bigint, p_ids bigint[], p_errors text[], p_after interval[] DEFAULT NULL::interval[], p_outcomes text[] DEFAULT NULL::text[]) returns TABLE(id bigint, attempts integer, dead boolean, process_after timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off, lock_timeout=300ms body 622c147f8699fc210639d7c5bd511667 grant to deed_worker
function fail_external(p_run uuid, p_step text, p_claim bigint, p_code text, p_message text DEFAULT ''::text, p_category text DEFAULT 'user'::text, p_retryable boolean DEFAULT true, p_not_done boolean DEFAULT false) returns text security definer set search_path=pg_catalog, pg_temp body a1d333b624da32f87922c56854208b42 grant to deed_worker
function fail_job(p_job uuid, p_error text, p_final boolean, p_worker text) returns text set search_path=pg_catalog, pg_temp body 3848103c0e296e776b8e3340b4e896f2
function finish(p_subscription integer, p_claim bigint, p_ids bigint[], p_failed integer DEFAULT 0) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off, lock_timeout=300ms body 0145e806b48294d955b9fbfbc254170a grant to deed_worker
function finish_audience(p_audience uuid, p_members bigint, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns void security definer set search_path=pg_catalog, pg_temp body eb1f0148876d988327ac5876c18fb7e5 grant to deed_admin, deed_app, deed_worker
function finish_doors(p_worker text, p_ids bigint[], p_message_ids uuid[] DEFAULT NULL::uuid[]) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body a44ed4ad88ca8e66d518ca0f04df36d3 grant to deed_worker
function finish_external(p_run uuid, p_step text, p_claim bigint, p_output jsonb DEFAULT NULL::jsonb) returns text security definer set search_path=pg_catalog, pg_temp body 07561b4e565c3f30e10106c4337e3e66 grant to deed_worker
function finish_messages(p_ids uuid[], p_claims bigint[], p_statuses text[], p_errors text[], p_again double precision[], p_most integer, p_worker text) returns TABLE(id uuid, status text, attempts integer, held boolean) security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, lock_timeout=300ms body 0a0bc730ae3af3efe93fe28b7d832465 grant to deed_worker
function finish_page(p_subscription integer, p_lane integer, p_fence bigint, p_n bigint, p_was text, p_from bigint, p_from_h xid8, p_to bigint, p_to_h xid8, p_slot integer, p_id bigint, p_messages integer, p_min bigint, p_max bigint, p_worker text, p_ids bigint[] DEFAULT NULL::bigint[], p_slots integer[] DEFAULT NULL::integer[], p_hashes bigint[] DEFAULT NULL::bigint[], p_errors text[] DEFAULT NULL::text[], p_after interval[] DEFAULT NULL::interval[], p_outcomes text[] DEFAULT NULL::text[], OUT n bigint, OUT dead boolean[]) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body faaf81ed3732b29d33a3ab9472b136e2 grant to deed_worker
function finish_steps(p_runs uuid[], p_places integer[], p_claims bigint[], p_steps text[], p_attempts integer[], p_outcomes text[], p_data jsonb[] DEFAULT NULL::jsonb[], p_started_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_not_done boolean[] DEFAULT NULL::boolean[], p_again double precision[] DEFAULT NULL::double precision[], p_until timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_adapter text DEFAULT NULL::text) returns TABLE(ordinal integer, result text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, lock_timeout=200ms, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 2ef34b8522907d4795dbb7b396b6a626 grant to deed_worker
function first_bits(p_steps integer) returns bytea body inline
function fold_address(p_channel text, p_address text) returns text body inline grant to deed_admin, deed_app, deed_worker
function fold_case(p_text text) returns text set search_path=pg_catalog, pg_temp body 0e4debfd43e21c16d53d81114ba6eb41 grant to deed_admin, deed_app, deed_worker
function forget_lanes(p_provider text, p_limit integer) returns integer security definer set search_path=pg_catalog, pg_temp, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 834112813e7b17cce1174ae478c90ad9 grant to deed_worker
function forget_salts() returns trigger security definer set search_path=pg_catalog, pg_temp body ac0c7832b926e8b938488c3233743b57
function give_up_deliveries(p_provider text, p_give_up interval, p_limit integer, p_worker text) returns TABLE(id uuid, tenant_id uuid, provider text, channel text, attempts integer, correlation_id text, channel_message_id uuid, reason text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body 4c9644e97d029bb50d3e035a9e57c3c7 grant to deed_worker
function give_up_job(p_job uuid, p_claim bigint, p_error text, p_worker text) returns text security definer set search_path=pg_catalog, pg_temp body 22fa627f6d25f10b6673061af73040ce grant to deed_worker
function has_invisible(p_text text) returns boolean body inline grant to deed_admin, deed_app, deed_worker
function has_revoked(p_tenant uuid, p_contact uuid, p_channel text, p_purpose text) returns boolean set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body b99b2e1df48c4e59b57a5644f7b4c5dd
function has_vast_numbers(p_payload bytea) returns boolean set search_path=pg_catalog, pg_temp body 73fcc05b896d4e713e07414d9af8c163 grant to deed_admin, deed_app, deed_worker
function heal_keys(p_subscription integer, p_slots_from integer[], p_slots_upto integer[]) returns bigint[] security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 97e6ca85c3963592c754ebf9b2fcc4c2 grant to deed_worker
function held(p_cluster boolean, p_environment text) returns text security definer set search_path=pg_catalog, pg_temp body a52f861044cdf9cfe07957eb2bfcdfb7 grant to deed_admin, deed_worker
function held_up(p_provider text, p_run uuid, p_options jsonb, p_zone text, p_due timestamp with time zone, p_now timestamp with time zone) returns interval set search_path=pg_catalog, pg_temp body 51c3031d37b495acb214b04f3c34c6a4
function hold_bounces(p_held uuid[], p_ids uuid[], p_events text[], p_addresses text[]) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body cb3a69ec29e781954e04a1a41143ddb8
function hold_run(p_run uuid, p_tenant uuid) returns bigint set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body 92d1e1b6dd014731257c939b7b204fa5
function idempotency_key(VARIADIC p_parts text[]) returns bytea set search_path=pg_catalog, pg_temp body 1fde0724e3bec5cc715250a0f285c0de grant to deed_admin, deed_app, deed_worker
function identity_written() returns trigger set search_path=pg_catalog, pg_temp body 53ac31916dc87d010f421f1014c41265
function is_bad_header(p_name text, p_value jsonb) returns boolean body inline grant to deed_admin, deed_app, deed_worker
function is_being_erased(p_tenant uuid, p_channel text, p_recipient text, p_created timestamp with time zone) returns boolean body inline
function is_copy_being_erased(p_tenant uuid, p_cc text[], p_created timestamp with time zone) returns boolean body inline
function is_deep(p_payload bytea) returns boolean set search_path=pg_catalog, pg_temp body 6b04b07d0cdecb8bc9bd024f81186a7f grant to deed_admin, deed_app, deed_worker
function is_json(p_content_type text) returns boolean body inline grant to deed_admin, deed_app, deed_worker
function is_removed(p_tenant uuid) returns boolean set search_path=pg_catalog, pg_temp body 258378254c1044c60b01e0903f6523cb
function is_zone(p_zone text) returns boolean set search_path=pg_catalog, pg_temp body 0bdf0a36d8323e16e553fde98b99c4cd
function jobs_beside(p_job uuid) returns uuid[] set search_path=pg_catalog, pg_temp body 50932a466383acecabca8987593c7ba7
function join_list(p_subscription integer) returns boolean security definer set search_path=pg_catalog, pg_temp, lock_timeout=50ms body 665ab7814c20f40ecb6ffb9099fa1a8f
function json_digits(p_json jsonb) returns bigint set search_path=pg_catalog, pg_temp body 9677546d44aa6bab801514d102ca1a46
function json_excess(p_payload bytea) returns text body inline grant to deed_admin, deed_app, deed_worker
function keep_partitions(p_ahead integer DEFAULT 2) returns integer security definer set search_path=pg_catalog, pg_temp, lock_timeout=2s body fef12310cc777097cceb55588e4c4b06 grant to deed_worker
function keep_run_partitions(p_ahead integer DEFAULT 2) returns integer set search_path=pg_catalog, pg_temp body 64579bfecdeaaf27ea59496bfe3d5897
function keepers(p_n integer) returns TABLE(what text, subscription integer, lane integer, until timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 7d05f8a5fce2900be0113f132f855027
function key_hash(p_tenant uuid, p_key text) returns bigint set search_path=pg_catalog, pg_temp body 75ed462de4ec7797d5518f092ce3cb70
function key_part(p_part text) returns bytea body inline
function keys_aside(p_subscription integer, p_slots_from integer[], p_slots_upto integer[]) returns SETOF bigint set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body b3cc2fdbb081aae6061557a9572aaa41 grant to deed_worker
function known_addresses(p_contacts uuid[]) returns TABLE(contact_id uuid, channel text, address text) body inline
function known_as(p_tenant uuid, p_type text, p_value text) returns TABLE(contact_id uuid, means uuid) body inline grant to deed_admin, deed_app, deed_worker
function lag(p_subscriptions integer[], p_most integer DEFAULT 10000) returns TABLE(subscription integer, behind bigint, oldest timestamp with time zone) set search_path=pg_catalog, pg_temp body 4e68e525e46c7221fae130c2d37b6cd5 grant to deed_admin, deed_worker
function lane_of(p_kind text, p_channel text, p_folded text) returns text body inline
function late_xids(p_cur pg_snapshot, p_h xid8, p_seen pg_snapshot) returns xid8[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 2b8a1a8431fdb990eb510b5d2d484eec grant to deed_admin, deed_worker
function leave_relays(p_worker uuid, p_release boolean DEFAULT false) returns void security definer set search_path=pg_catalog, pg_temp body 71c684cba8aae4c8f928293285645689 grant to deed_worker
function level_list() returns void security definer set search_path=pg_catalog, pg_temp body 4ba546168c5757acf45f025cb62b87b6
function load_plan(p_plan_id text, p_plan_version text, p_sha256 bytea DEFAULT NULL::bytea, p_tenant uuid DEFAULT NULL::uuid) returns TABLE(body bytea, expected bytea, actual bytea, created_at timestamp with time zone, created_by text) security definer set search_path=pg_catalog, pg_temp body 2100deac3a663651e6edfd248e565b7d grant to deed_admin, deed_app, deed_worker
function lock_contacts(p_call text, p_tenant uuid, p_contacts uuid[]) returns void set search_path=pg_catalog, pg_temp, jit=off, enable_seqscan=off body 90ae8e694f32f83d9663c874826c1612
function lock_contents(p_tenant uuid, p_channels text[], p_payloads jsonb[], p_keys bytea[], p_workspaces uuid[]) returns bigint[] set search_path=pg_catalog, pg_temp, jit=off, enable_seqscan=off body 7a5659642e805400ae4d4db155e82692
function lock_keys(p_subscription integer, p_hashes bigint[]) returns bigint[] security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 845b28af22ac31d4a3d1ce703a8e74ad grant to deed_worker
function log_extents() returns TABLE(from_id bigint, last_id bigint, upto_id bigint) security definer set search_path=pg_catalog, pg_temp body 8a36e2f81829cfb21e31c23ca023506b grant to deed_admin, deed_app, deed_worker
function look_at_audit(p_upto bigint, p_limit integer, p_subject text DEFAULT NULL::text, p_all boolean DEFAULT false) returns TABLE(n bigint, at timestamp with time zone, actor text, login text, action text, subject_type text, subject_id text, reason text, affected bigint, details jsonb) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body b92a4bcbfc60c6d635d632933d0dbf63 grant to deed_admin, deed_worker
function look_at_blocked(p_from bigint, p_from_subscription integer, p_each integer, p_limit integer, p_behind integer, p_topic text DEFAULT NULL::text) returns TABLE(next_id bigint, next_subscription integer, id bigint, subscription integer, topic text, name text, key text, tenant_id uuid, message_id uuid, attempts integer, dead boolean, due timestamp with time zone, last_error text, since timestamp with time zone, behind bigint) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body 1c859139a5cee8b3a733a156a34f555a grant to deed_admin, deed_worker
function look_at_contents(p_at timestamp with time zone, p_at_tenant uuid, p_at_sha256 bytea, p_limit integer, p_needed integer, p_tenant uuid DEFAULT NULL::uuid, p_sha256 bytea DEFAULT NULL::bytea) returns TABLE(tenant_id uuid, sha256 bytea, size integer, type text, created_at timestamp with time zone, used_at timestamp with time zone, needed_by uuid[]) set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body 36b2b48afb20fa0f8cd9cbd10726d9f0 grant to deed_admin, deed_worker
function look_at_dead(p_upto bigint, p_upto_subscription integer, p_each integer, p_each_undeclared integer, p_limit integer, p_topic text DEFAULT NULL::text, p_subscription text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_type text DEFAULT NULL::text, p_error text DEFAULT NULL::text, p_ids bigint[] DEFAULT NULL::bigint[], p_older interval DEFAULT NULL::interval, p_newer interval DEFAULT NULL::interval) returns TABLE(looked bigint, next_id bigint, next_subscription integer, oldest timestamp with time zone, id bigint, subscription integer, message_id uuid, topic text, name text, key text, type text, tenant_id uuid, attempts integer, lost_claims integer, dead_at timestamp with time zone, last_error text) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body f0bd606f1d3baeee679eea4d0c68ec0a grant to deed_admin, deed_worker
function look_at_deliveries(p_before uuid, p_each integer, p_limit integer, p_status text DEFAULT NULL::text, p_provider text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_recipient text DEFAULT NULL::text, p_doubt boolean DEFAULT false, p_contacts uuid[] DEFAULT NULL::uuid[]) returns TABLE(looked bigint, next uuid, oldest timestamp with time zone, id uuid) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body d58f3bba542f8abc7c3f8323d67eca18 grant to deed_admin, deed_worker
function look_at_kept(p_upto bigint, p_each integer, p_limit integer, p_topic text DEFAULT NULL::text, p_key text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_after timestamp with time zone DEFAULT NULL::timestamp with time zone, p_payload boolean DEFAULT false) returns TABLE(looked bigint, above bigint, oldest timestamp with time zone, id bigint, slot integer, message_id uuid, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, size integer, payload bytea, created_at timestamp with time zone, process_after timestamp with time zone) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body ab5ca5277625d0286856a9570ef65ca7 grant to deed_admin, deed_app, deed_worker
function look_at_providers(p_most integer) returns TABLE(name text, kind text, account text, sandbox boolean, registered boolean, key_window_seconds double precision, can_look_up boolean, queued bigint, due bigint, sending bigint, in_doubt bigint, held bigint, dead bigint, paused bigint, pauses text, limits text, idle text, deferred bigint, deferred_since timestamp with time zone) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body a531c3c1950def71529ae079a7b7aa21 grant to deed_admin, deed_worker
function look_at_rates(p_each integer, p_domains integer DEFAULT 0, p_provider text DEFAULT NULL::text) returns TABLE(provider text, domain text, whole boolean, hour_accepted bigint, hour_delivered bigint, hour_bounced bigint, hour_complained bigint, day_accepted bigint, day_delivered bigint, day_bounced bigint, day_complained bigint) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body f9dab87b44b8d829ceee85293dbc496f grant to deed_admin, deed_worker
function look_at_suppressions(p_at timestamp with time zone, p_at_tenant uuid, p_at_channel text, p_at_address text, p_at_purpose text, p_each integer, p_limit integer, p_tenant uuid DEFAULT NULL::uuid, p_channel text DEFAULT NULL::text, p_address text DEFAULT NULL::text, p_purpose text DEFAULT NULL::text) returns TABLE(looked bigint, next_at timestamp with time zone, next_tenant uuid, next_channel text, next_address text, next_purpose text, tenant_id uuid, channel text, address text, purpose text, reason text, actor text, created_at timestamp with time zone, expires_at timestamp with time zone) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body 45c9835936a0c0982fc07e174d86a0bf grant to deed_admin, deed_app, deed_worker
function look_at_topics(p_most integer DEFAULT 100) returns TABLE(topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint, oldest_due_seconds double precision, parked bigint, blocked_keys bigint, lag bigint, at_least boolean, dead_at_least boolean, delivered_at_least boolean, lanes bigint, lanes_held bigint) set search_path=pg_catalog, pg_temp, enable_nestloop=off, enable_mergejoin=off, jit=off body 16a921a79e51d1e9fd75dd4beff3bd1c grant to deed_admin, deed_worker
function look_by_number(p_from bigint, p_upto bigint, p_limit integer, p_topic text DEFAULT NULL::text, p_key text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_after timestamp with time zone DEFAULT NULL::timestamp with time zone, p_payload boolean DEFAULT false) returns TABLE(looked bigint, above bigint, oldest timestamp with time zone, id bigint, slot integer, message_id uuid, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, size integer, payload bytea, created_at timestamp with time zone, process_after timestamp with time zone) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_indexscan=off, jit=off body dd47f7fe62b25abc0efefb1e87122352 grant to deed_admin, deed_app, deed_worker
function look_by_topic(p_topic text, p_upto bigint, p_each integer, p_limit integer, p_key text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_after timestamp with time zone DEFAULT NULL::timestamp with time zone, p_payload boolean DEFAULT false) returns TABLE(looked bigint, above bigint, oldest timestamp with time zone, id bigint, slot integer, message_id uuid, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, size integer, payload bytea, created_at timestamp with time zone, process_after timestamp with time zone) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body 513b6f356d5017d1855c1a6c2c7c794f grant to deed_admin, deed_worker
function make_lanes(p_subscription integer) returns void security definer set search_path=pg_catalog, pg_temp body 9f44bbaf646ea7fd84e3f0df958fc4b1
function mark_audit(p_limit integer) returns bigint security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body 832b7ab05d3fe22f1ab31a85c54a4dc6 grant to deed_worker
function mark_due() returns trigger set search_path=pg_catalog, pg_temp body d494de743e1e910e20e2430b2c9c7b0e
function mark_lanes(p_provider text, p_tenant uuid, p_held uuid[], p_most integer) returns jsonb set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body a261d1c3ffff99be95defc10986938a6
function mark_suppressions(p_tenant uuid, p_channels text[], p_addresses text[], p_marks text[], p_actor text, p_because text[] DEFAULT NULL::text[], p_contact uuid DEFAULT NULL::uuid) returns void set search_path=pg_catalog, pg_temp, jit=off body 534a737c629da4483684e7e6b25bada6
function match_events(p_limit integer, p_actor text) returns bigint security definer set search_path=pg_catalog, pg_temp body 6cff3840ea26f6c26720d1e0eb7fd5f1 grant to deed_worker
function match_late_events(p_limit integer, p_actor text, OUT looked bigint, OUT told jsonb) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 4c3fe4db4b31da51ce2458118a48836c grant to deed_worker
function may_repeat(p_id uuid, p_claim bigint, p_kind text, p_account text, p_sandbox boolean) returns boolean security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 0c21de92b6cf5c54da8e2f3134306d46 grant to deed_worker
function members_at(p_tenant uuid, p_channels text[], p_addresses text[]) returns TABLE(audience_id uuid, n bigint, contact_id uuid) set search_path=pg_catalog, pg_temp, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body b4ec38b7e30759119f639430b75b1fc8
function merge_contacts(p_from uuid, p_into uuid, p_reason text, p_actor text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid) returns boolean security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body cfc3b66450f0332562e7f953452f4c1c grant to deed_admin, deed_app, deed_worker
function message_id(p_created_at timestamp with time zone, p_id bigint) returns uuid body inline grant to deed_admin, deed_app, deed_worker
function message_seq(p_message_id uuid) returns bigint body inline grant to deed_admin, deed_app, deed_worker
function name_probes(p_provider text, p_places tid[], p_claim bigint) returns void set search_path=pg_catalog, pg_temp body 51b84ee42568c662aebcb5eac08e0d6d
function names_of(p_id uuid) returns SETOF uuid body inline grant to deed_admin, deed_app, deed_worker
function new_id() returns uuid set search_path=pg_catalog, pg_temp body 96a6c948036d91081bb47cde4221c65d
function newest_read() returns bigint set search_path=pg_catalog, pg_temp body 80966a73b29fcc731b712a704f93a502
function next_claimable(p_subscription integer, p_from timestamp with time zone, p_upto timestamp with time zone) returns timestamp with time zone security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 37c1aaee16bf3b77d363c05119352353 grant to deed_worker
function next_due(p_subscription integer) returns double precision set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body d322135673b3d14221d0915565808f1e grant to deed_worker
function note_asking(p_subscriptions integer[]) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 3264271fdda50b76294df8f3996cdfe0
function note_attempts(p_ids uuid[], p_claims bigint[], p_numbers integer[], p_outcomes text[], p_message_ids text[], p_codes text[], p_errors text[], p_keys text[], p_sandboxes boolean[], p_took double precision[], p_worker text) returns TABLE(id uuid, status text, was text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=1s, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 61555e178260328930f6046530d2966a grant to deed_worker
function note_campaigns(p_worker text, p_for interval) returns void security definer set search_path=pg_catalog, pg_temp body ddb66b921cf1a9f6bfdf7b966f1d3cd3 grant to deed_worker
function note_idle(p_worker text, p_provider text, p_kind text, p_account text, p_sandbox boolean) returns boolean security definer set search_path=pg_catalog, pg_temp body e43ed6d8307d502b8a0491bf2ea9e2fe grant to deed_worker
function oldest_calls() returns TABLE(topic text, subscription text, id bigint, message_id uuid, messages integer, worker text, since timestamp with time zone) set search_path=pg_catalog, pg_temp body db9a90a23180c4fd7f2c199254509430 grant to deed_admin, deed_worker
function oldest_pauses() returns TABLE(topic text, subscription text, worker text, workers bigint, why text, since timestamp with time zone) set search_path=pg_catalog, pg_temp body 8ee1264b7a18da2e32115ea5628d8673 grant to deed_admin, deed_worker
function open_deliveries(p_tenant uuid, p_contacts uuid[], p_channels text[], p_addresses text[]) returns uuid[] set search_path=pg_catalog, pg_temp, jit=off, enable_seqscan=off body 12180c688234470ef40750e19c9553ce
function open_window(p_way text DEFAULT 'wait'::text) returns bigint security definer set search_path=pg_catalog, pg_temp body b3b50a909b9f7d764d59615c8cbf9819 grant to deed_worker
function order_at(p_created_at timestamp with time zone, p_now timestamp with time zone) returns timestamp with time zone body inline grant to deed_admin, deed_app, deed_worker
function pace_of(p_options jsonb, OUT rate double precision, OUT ramp double precision[], OUT problem text) returns record set search_path=pg_catalog, pg_temp body 3b9ffd14105ef945dfaf707457330a8a
function page(p_subscription integer, p_slot_from integer, p_slot_upto integer, p_from bigint, p_from_h xid8, p_to bigint, p_to_h xid8, p_slot integer, p_id bigint, p_limit integer, p_low bigint DEFAULT NULL::bigint, p_late xid8[] DEFAULT NULL::xid8[]) returns TABLE(place_slot integer, slot integer, id bigint, tenant_id uuid, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone, due boolean) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 496a1addbed130e650dfed1d1b514aaa grant to deed_worker
function pass_turns(p_tenants uuid[], p_sources text[], p_kinds text[], p_senders text[]) returns void set search_path=pg_catalog, pg_temp, jit=off, enable_seqscan=off, enable_bitmapscan=off body 7a82f63b408073c4924d42e328dfd349
function passed_by_stream(p_topic text, p_slot integer, p_list_version bigint) returns boolean set search_path=pg_catalog, pg_temp body 819967dc6e4aa28cd620a51cb107d612
function pause(p_provider text, p_ids uuid[], p_claims bigint[], p_destinations text[], p_errors text[], p_after double precision[], p_opens boolean[], p_base interval DEFAULT '00:00:05'::interval, p_jitter double precision[] DEFAULT '{0.5,1}'::double precision[], p_most interval DEFAULT '00:05:00'::interval, p_until text[] DEFAULT NULL::text[]) returns TABLE(destination text, tenant_id uuid, since timestamp with time zone, until timestamp with time zone, failures integer) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body b2efed19b2c46db42c48d4a7366a7874 grant to deed_worker
function pause_allows(p_provider text, p_destination text, p_tenant uuid) returns integer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan body eb51c0886e174a18e9462b58d84d57bf
function pause_failing(p_worker text) returns TABLE(run_id uuid, tenant_id uuid, why text) security definer set search_path=pg_catalog, pg_temp, jit=off body e1c9e373816b825f7e6a569346fd67ce grant to deed_worker
function pause_lane(p_subscription integer, p_lane integer, p_fence bigint) returns boolean security definer set search_path=pg_catalog, pg_temp body b08d385ecf7e733bbca9e3603dc220c8 grant to deed_worker
function pause_problem(p_options jsonb) returns text set search_path=pg_catalog, pg_temp body 008c4b4e6f69bdc790e3804ffd316c54
function pause_run(p_run uuid, p_reason text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns bigint security definer set search_path=pg_catalog, pg_temp body 24b637651b6aea8c693b029029feb7df grant to deed_admin, deed_app
function payload_contents(p_payload jsonb) returns bytea[] body inline
function payload_copies(p_payload jsonb) returns text[] body inline
function payload_json(p_content_type text, p_payload bytea) returns jsonb body inline grant to deed_admin, deed_app, deed_worker
function plan_duration(p_text text) returns interval set search_path=pg_catalog, pg_temp body 68809ea8959a69109db83b2a5f8b3f9c grant to deed_admin, deed_worker
function plan_graph(p_body bytea) returns TABLE(place integer, step_id text, kind text, needs_success boolean, names integer, depends integer[], successors integer[], attempts integer, backoff interval, at_most_once boolean, queue text) set search_path=pg_catalog, pg_temp body 5297d1ebf20ad54e07ac9064a6c410a9 grant to deed_admin, deed_worker
function plan_mode(p_tables regclass[]) returns text set search_path=pg_catalog, pg_temp body 7275a986c04ccd75a7d04e00abed20b1
function prove_delivery(p_id uuid, p_message_id text, p_actor text) returns TABLE(ended boolean, was text, status text, tenant_id uuid, provider text, channel text, attempts integer, correlation_id text, channel_message_id uuid) security definer set search_path=pg_catalog, pg_temp body c681df3fd121e8743c1b1c644dec1eec grant to deed_worker
function provider_lacks(p_provider text, p_channel text, p_options jsonb) returns text[] set search_path=pg_catalog, pg_temp body 2c3c9d0e122b39293fe506fa7ec101a4
function provider_problem(p_provider text, p_channel text, p_tenant uuid) returns text set search_path=pg_catalog, pg_temp body 98e901683cf5e9ec667b8ebbe63545fd
function publish(p_topic text, p_payload jsonb, p_key text DEFAULT NULL::text, p_type text DEFAULT NULL::text, p_headers jsonb DEFAULT NULL::jsonb, p_tenant uuid DEFAULT NULL::uuid, p_idempotency_key text DEFAULT NULL::text, p_process_after timestamp with time zone DEFAULT NULL::timestamp with time zone) returns bigint set search_path=pg_catalog, pg_temp body 4a5863fb57d87a4495d23f407c2529c8 grant to deed_admin, deed_app, deed_worker
function publish_many(p_topics text[], p_payloads bytea[], p_keys text[] DEFAULT NULL::text[], p_types text[] DEFAULT NULL::text[], p_content_types text[] DEFAULT NULL::text[], p_headers jsonb[] DEFAULT NULL::jsonb[], p_tenants uuid[] DEFAULT NULL::uuid[], p_idempotency_keys text[] DEFAULT NULL::text[], p_process_after timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_created_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_aggregate_types text[] DEFAULT NULL::text[], p_raise boolean DEFAULT true) returns TABLE(ordinal integer, id bigint, message_id uuid, repeated boolean, code text, problem text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan body e6a268df965aca5798b008883ae853ab grant to deed_admin, deed_app, deed_worker
function publish_one(p_topic text, p_payload bytea, p_key text DEFAULT NULL::text, p_type text DEFAULT NULL::text, p_content_type text DEFAULT NULL::text, p_headers jsonb DEFAULT NULL::jsonb, p_tenant uuid DEFAULT NULL::uuid, p_idempotency_key text DEFAULT NULL::text, p_process_after timestamp with time zone DEFAULT NULL::timestamp with time zone, p_raise boolean DEFAULT true, OUT id bigint, OUT message_id uuid, OUT repeated boolean, OUT code text, OUT problem text) returns record security definer set search_path=pg_catalog, pg_temp body 3cb0452cb9cad469f263434415b3e657 grant to deed_admin, deed_app, deed_worker
function publish_problems(p_topics text[], p_payloads bytea[], p_keys text[], p_types text[], p_content_types text[], p_headers jsonb[], p_idempotency_keys text[]) returns TABLE(ordinal integer, code text, problem text) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan body 62a2ef0d4ae40c4109271d27014b8c37 grant to deed_admin, deed_app, deed_worker
function punycode(p_label text) returns text set search_path=pg_catalog, pg_temp body 4c1c42a5b83c87271498beae5a48be42 grant to deed_admin, deed_app, deed_worker
function punycode_bias(p_delta bigint, p_count integer, p_first boolean) returns integer set search_path=pg_catalog, pg_temp body ac9f15bcba4f9847d762ba262f1e6245 grant to deed_admin, deed_app, deed_worker
function purge() returns bigint security definer set search_path=pg_catalog, pg_temp, jit=off body 91507939ef7c3b36845228f3a68c121d grant to deed_admin, deed_worker
function purge_contents(p_age interval, p_limit integer, p_actor text) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, jit=off body 7ced70c1a654dd206f746e6d872bc149 grant to deed_worker
function purge_deliveries(p_age interval, p_limit integer, p_actor text) returns integer security definer set search_path=pg_catalog, pg_temp body 8f982ca2bdcff6185f98095f7b7306a3 grant to deed_worker
function purge_erased_contents(p_limit integer) returns integer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, jit=off body bef928fcfd80f798f1cf7014b08e674e
function purge_history(p_limit integer DEFAULT 5000) returns TABLE(what text, removed integer) security definer set search_path=pg_catalog, pg_temp, lock_timeout=50ms, enable_seqscan=off, jit=off body 529de708d81b252ee56460ff7cfb75a2 grant to deed_admin, deed_worker
function purge_kept(p_slot integer, p_id bigint, p_limit integer DEFAULT 5000, OUT removed integer, OUT next_slot integer, OUT next_id bigint) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 03418d2c629d8dacb282960f33411c85 grant to deed_admin, deed_worker
function purge_keys(p_limit integer DEFAULT 5000) returns integer security definer set search_path=pg_catalog, pg_temp body f98008ad1c1d01a6b12e00e5f45ffb24 grant to deed_worker
function purge_messages(p_age interval, p_limit integer, p_actor text) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 77738c8eff31a761c3045b973e7a4f92 grant to deed_worker
function purge_run(p_limit integer, p_actor text) returns integer security definer set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body bd920f58b2322362cfda6c39c20cbf78 grant to deed_worker
function put_audience(p_name text, p_channel text, p_workspace uuid DEFAULT NULL::uuid, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, OUT audience_id uuid, OUT status text, OUT members bigint) returns record security definer set search_path=pg_catalog, pg_temp, jit=off body f73c8f2aefbef69601180ae888552ca2 grant to deed_admin, deed_app, deed_worker
function put_audit_seal(p_k bigint, p_upto bigint, p_leaves bytea, p_previous bytea, p_sha256 bytea, p_key text, p_signature bytea, p_at timestamp with time zone, p_blinds bigint[], p_parts text[], p_salts bytea[], p_hashes bytea[]) returns boolean security definer set search_path=pg_catalog, pg_temp body fd208f41539c118beecb56389dc9fd2f grant to deed_admin, deed_worker
function put_back_job(p_job uuid, p_claim bigint, p_error text, p_worker text) returns text security definer set search_path=pg_catalog, pg_temp body 68674a4b83a1a7bf82225b7b1b1aa4bd grant to deed_worker
function put_campaign(p_name text, p_content jsonb, p_workspace uuid DEFAULT NULL::uuid, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, OUT campaign_id uuid, OUT content_id uuid) returns record security definer set search_path=pg_catalog, pg_temp, jit=off body 82d4067245e90fbb6f2d6d7897b7ef54 grant to deed_admin, deed_app, deed_worker
function put_content(p_bytes bytea, p_type text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid) returns TABLE(sha256 bytea, duplicate boolean) security definer set search_path=pg_catalog, pg_temp body 36fc412ed32a36a6e4d8a3caee9eb217 grant to deed_admin, deed_app, deed_worker
function put_off(p_run uuid, p_places tid[], p_now timestamp with time zone) returns tid[] set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 134ed62fdd86c897b74463c6b16545e3
function put_plan(p_body bytea, p_by text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, OUT plan_id text, OUT plan_version text, OUT sha256 bytea, OUT created boolean) returns record security definer set search_path=pg_catalog, pg_temp body 2e593392e8f00117c8571630706afcda grant to deed_admin, deed_app, deed_worker
function quiet_time(p_options jsonb, p_zone text, p_from timestamp with time zone, p_upto timestamp with time zone) returns interval set search_path=pg_catalog, pg_temp body c9f0e24a264e055de351cfdfc5333a60
function record_events(p_provider text, p_kind text, p_account text, p_tenants uuid[], p_events text[], p_event_ids text[], p_markers text[], p_message_ids text[], p_addresses text[], p_ats timestamp with time zone[], p_reasons text[], p_codes text[], p_actor text, p_wait interval DEFAULT '00:00:01'::interval, OUT matched bigint, OUT waiting bigint, OUT strange bigint, OUT proved uuid[], OUT busy bigint, OUT told jsonb) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 48defc64888c6d1d79b6bf4b2c646992 grant to deed_worker
function record_steps(p_runs uuid[], p_places integer[], p_claims bigint[], p_steps text[], p_attempts integer[], p_outcomes text[], p_data jsonb[] DEFAULT NULL::jsonb[], p_started_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_again double precision[] DEFAULT NULL::double precision[], p_lease interval DEFAULT '00:00:30'::interval, p_adapter text DEFAULT NULL::text) returns TABLE(ordinal integer, result text, until timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, lock_timeout=200ms, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body a57014e3bef76e4414d3117c85dcb262 grant to deed_worker
function redact_run(p_run uuid, p_reason text, p_by text DEFAULT NULL::text) returns bigint security definer set search_path=pg_catalog, pg_temp body 44b0fdf6f4a770529d2188749ffccdc6 grant to deed_admin
function redrive(p_request text, p_topic text DEFAULT NULL::text, p_subscription text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_type text DEFAULT NULL::text, p_error text DEFAULT NULL::text, p_ids bigint[] DEFAULT NULL::bigint[], p_older interval DEFAULT NULL::interval, p_newer interval DEFAULT NULL::interval, p_limit integer DEFAULT NULL::integer, p_rate integer DEFAULT NULL::integer, p_by text DEFAULT NULL::text, p_reason text DEFAULT NULL::text, p_step integer DEFAULT 500) returns TABLE(state text, chosen bigint, redriven bigint, step integer, wait double precision) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, enable_incremental_sort=off, jit=off body 2b1e6f9c298457a33cf4b0fa6843ea02 grant to deed_admin
function redrive_deliveries(p_request text, p_statuses text[], p_provider text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_error text DEFAULT NULL::text, p_since interval DEFAULT NULL::interval, p_limit integer DEFAULT NULL::integer, p_rate integer DEFAULT NULL::integer, p_by text DEFAULT NULL::text, p_reason text DEFAULT NULL::text, p_step integer DEFAULT 500, p_dry boolean DEFAULT false) returns TABLE(state text, chosen bigint, redriven bigint, step integer, wait double precision) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body 80d3a9cac607c09bbd5844315cc32024 grant to deed_admin
function refold_suppressions() returns bigint set search_path=pg_catalog, pg_temp body cbd2aeac28f8eb86a2c2009c28418357
function refuse_campaign_change() returns trigger set search_path=pg_catalog, pg_temp body 150879d94f1f007c437ef2b03218c2b2
function refuse_change() returns trigger set search_path=pg_catalog, pg_temp body 476db46351943413014ac2480ef09b67
function refuse_engines_steps(p_runs uuid[], p_steps text[], p_repeated boolean[]) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 8ed71ccc0490f95de529869c3cf27a5f
function refuse_members() returns trigger set search_path=pg_catalog, pg_temp body b373c90d8c93330dbefbb5947695b23f
function refuse_rewrite() returns trigger set search_path=pg_catalog, pg_temp body 1b7c7f9b60ee9b9c642bac9f0fbb5344
function refuse_run_change() returns trigger set search_path=pg_catalog, pg_temp body 5853d2a4d8a0cd397d5135b52b5285f9
function register_functions(p_bodies bytea[]) returns void security definer set search_path=pg_catalog, pg_temp body 74f45ccedde272350e0ca80eb54f07b6 grant to deed_worker
function register_provider(p_name text, p_kind text, p_lanes text, p_key_window interval, p_can_look_up boolean, p_limited text[], p_rates double precision[], p_bursts double precision[], p_actor text, p_account text DEFAULT ''::text, p_sandbox boolean DEFAULT false, p_reports text[] DEFAULT NULL::text[], p_verified text[] DEFAULT NULL::text[], p_channels text[] DEFAULT NULL::text[], p_tenants uuid[] DEFAULT NULL::uuid[]) returns boolean security definer set search_path=pg_catalog, pg_temp body 4ed5f2b4ab232b5638f74ff51dd6f4f7 grant to deed_worker
function relane_deliveries(p_provider text, p_limit integer) returns integer security definer set search_path=pg_catalog, pg_temp, enable_hashjoin=off, enable_mergejoin=off, jit=off body a62bf46fc87a26d9ee6a44739896f8a1 grant to deed_worker
function release_keys(p_subscription integer, p_hashes bigint[]) returns bigint[] security definer set search_path=pg_catalog, pg_temp, lock_timeout=500ms, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body a2deae8821d5e8cfd794e8097fd2e190 grant to deed_worker
function release_lane(p_subscription integer, p_lane integer, p_fence bigint) returns boolean security definer set search_path=pg_catalog, pg_temp body 260022e00e57c3b43df70a4dae7e90ca grant to deed_worker
function remove_audience(p_audience uuid, p_limit integer DEFAULT 10000, p_reason text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, OUT removed bigint, OUT gone boolean) returns record security definer set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body d121bd602fc80732373ddf6944736386 grant to deed_admin, deed_app
function remove_content(p_sha256 bytea, p_reason text, p_actor text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid) returns void security definer set search_path=pg_catalog, pg_temp body 799e9d33317f2451eaa0aecce3598a04 grant to deed_admin, deed_app
function remove_step(p_n bigint, p_limit integer DEFAULT 5000) returns TABLE(state text, taken integer, total bigint) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off, lock_timeout=1s body 934e93d74657b7da57ea94686cd59f41 grant to deed_admin, deed_worker
function remove_subscription(p_topic text, p_name text, p_reason text, p_by text DEFAULT NULL::text) returns bigint security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s body c0e8e77c7424135ea8685c963bbedced grant to deed_admin
function remove_tenant(p_tenant uuid, p_reason text, p_by text DEFAULT NULL::text) returns boolean security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s body de2d8850d5a891929b685a6040ab02f0 grant to deed_admin
function remove_tenant_step(p_tenant uuid, p_limit integer DEFAULT 5000) returns TABLE(state text, taken jsonb) security definer set search_path=pg_catalog, pg_temp, jit=off, lock_timeout=1s body fdd9da3a9941091b8937a4f0b6095c47 grant to deed_worker
function remove_topic(p_topic text, p_reason text, p_by text DEFAULT NULL::text) returns bigint[] security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s body e6c177c54d6efffe0527fdc844c317d2 grant to deed_admin
function replace_snapshots(p_run uuid, p_seq bigint, p_snapshot jsonb, p_redacted boolean) returns void security definer set search_path=pg_catalog, pg_temp body 98fd40d4c97899600809f2567784a2b4 grant to deed_admin, deed_worker
function report_calls(p_worker uuid, p_name text, p_subscriptions integer[], p_ids bigint[], p_message_ids uuid[], p_messages integer[], p_ages interval[]) returns void security definer set search_path=pg_catalog, pg_temp body 4c979ce07f927ac9dcd358dd94f7017a grant to deed_worker
function report_pauses(p_worker uuid, p_name text, p_subscriptions integer[], p_whys text[], p_ages interval[]) returns void security definer set search_path=pg_catalog, pg_temp body 3ffbe6d4f8c2186de0239f880a5faaf4 grant to deed_worker
function request_key(p_tenant uuid, p_project text, p_environment text, p_plan text, p_version text, p_request text) returns bytea body inline
function reschedule(p_id bigint, p_at timestamp with time zone, p_subscription text DEFAULT NULL::text, p_reason text DEFAULT NULL::text, p_by text DEFAULT NULL::text) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off body 8810dcb2c798fcdfb290837ddb0e5f25 grant to deed_admin, deed_worker
function reserve(p_channels text[], p_providers text[], p_recipients text[], p_payloads jsonb[], p_keys bytea[], p_recipient_ids text[] DEFAULT NULL::text[], p_guarantees text[] DEFAULT NULL::text[], p_process_after timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_correlation_ids text[] DEFAULT NULL::text[], p_channel_message_ids uuid[] DEFAULT NULL::uuid[], p_workspaces uuid[] DEFAULT NULL::uuid[], p_max_attempts integer[] DEFAULT NULL::integer[], p_expires_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_purposes text[] DEFAULT NULL::text[], p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, p_contacts uuid[] DEFAULT NULL::uuid[]) returns TABLE(n integer, id uuid, status text, duplicate boolean) security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_generic_plan, work_mem=64MB, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off body d0643a6fa64550ab3d68b418073840c6 grant to deed_admin, deed_app, deed_worker
function resume_provider(p_provider text, p_destination text, p_reason text, p_actor text) returns bigint security definer set search_path=pg_catalog, pg_temp body a12f39555a1ad5874a0d43939a755653 grant to deed_admin
function resume_run(p_run uuid, p_reason text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns void security definer set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body f2572069694a9ac5c0dd1fe09cdacec8 grant to deed_admin, deed_app
function retain_runs(p_keep interval, p_limit integer DEFAULT 1000) returns TABLE(did text, week integer, runs bigint) security definer set search_path=pg_catalog, pg_temp, lock_timeout=50ms, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2820e834b2d8b9daa4698733a1e95481 grant to deed_admin, deed_worker
function retention() returns TABLE(n integer, from_id bigint, upto_id bigint, state text, opened_at timestamp with time zone, closed_at timestamp with time zone, bytes bigint, unfinished bigint, overdue interval, kept_by text[], tried_at timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2d13d164d05f0120e0166011a76bbb28 grant to deed_admin, deed_worker
function retention_step(p_limit integer DEFAULT 1000) returns TABLE(n integer, did text, messages bigint, problem text) security definer set search_path=pg_catalog, pg_temp, lock_timeout=50ms, jit=off body 05869197b929971147f8bc763cc6a3fd grant to deed_admin, deed_worker
function retry_deliveries(p_ids uuid[], p_reason text, p_actor text) returns bigint security definer set search_path=pg_catalog, pg_temp body 822f35df724e671d742ffea1a4804972 grant to deed_admin
function retry_messages(p_ids uuid[], p_reason text, p_actor text DEFAULT NULL::text) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 351289c828765f8adc43b1d09d5e3924 grant to deed_admin
function retry_run(p_run uuid, p_request_id text, p_missed boolean DEFAULT false, p_reason text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text, OUT run_id uuid, OUT created boolean, OUT members bigint) returns record security definer set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body 316147092f3813dad3d58c3a2841392e grant to deed_admin, deed_app
function retry_step(p_run uuid, p_step text, p_reason text, p_new_key boolean DEFAULT false, p_by text DEFAULT NULL::text) returns integer security definer set search_path=pg_catalog, pg_temp, jit=off body 22d87298bd6bdf24e8390241dedc2aa2 grant to deed_admin
function revoked(p_tenant uuid, p_contact uuid, p_channel text, p_purpose text) returns TABLE(reason text) body inline
function revoked_by_another(p_tenant uuid, p_contact uuid, p_channel text, p_address text, p_purpose text) returns boolean set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 811e080dba3915a46f9f9aead0081606
function ripen(p_provider text, p_status text, p_after uuid, OUT seconds double precision, OUT after uuid) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 8ab4a0bc45bf2655807f55ef9f7c55cb
function roll_up(p_limit integer, p_worker text, p_from timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, OUT looked integer, OUT ended integer, OUT wait double precision, OUT mark timestamp with time zone, OUT rest double precision) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 6688d44b4d991f83d21af81e702be5f9 grant to deed_worker
function run_ends(p_run uuid, OUT ended bigint, OUT failed bigint, OUT complained bigint) returns record set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body 62ac4557913e3acb23b22cd65e71edf2
function run_ends_since(p_run uuid, p_from timestamp with time zone, OUT ended bigint, OUT failed bigint) returns record set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2ebe2d3935c022442006dca020f2ae80
function run_event_id(p_run uuid, p_seq bigint) returns uuid body inline grant to deed_admin, deed_app, deed_worker
function run_times(p_audience uuid, p_options jsonb, p_made timestamp with time zone, p_for timestamp with time zone, OUT zones jsonb, OUT first_due timestamp with time zone, OUT last_due timestamp with time zone) returns record set search_path=pg_catalog, pg_temp, jit=off body 958e3f9a3c1601a6a9b0e5cd243deac0
function run_to_seal(p_keep interval, p_except uuid[] DEFAULT '{}'::uuid[]) returns uuid security definer set search_path=pg_catalog, pg_temp, enable_bitmapscan=off, enable_seqscan=off, jit=off body 6e4413beaf3a12a8a0f90b69dcdd050d grant to deed_worker
function run_waits(p_run uuid) returns TABLE(why text, until timestamp with time zone, local_time text, zone text, zones bigint, deliveries bigint, rate double precision) security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body 9cb98f8108a4c9ce72f3d49e51afc106 grant to deed_admin, deed_app, deed_worker
function run_was_read(p_run uuid, p_tenant uuid, p_subscriptions integer[], p_unread timestamp with time zone) returns boolean set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off body c63b7bfe75cc89221bc81ee152d0db35
function runs_behind() returns TABLE(run_id uuid, seq bigint) security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 64d2d20d8beb3164851605681f735dc2 grant to deed_worker
function said_by(p_campaign uuid, p_options jsonb) returns SETOF deed.campaign_contents set search_path=pg_catalog, pg_temp body 86782610a574a1b9b8472e8a8b7d0543
function seal_run(p_run uuid, p_sealed jsonb, p_actor text) returns void security definer set search_path=pg_catalog, pg_temp body 9abc5762d9c59638eada0e8b364676b0 grant to deed_worker
function sender_domain(p_from text) returns text set search_path=pg_catalog, pg_temp body 6917e870c0d975eb00231e4507b7cee1
function serve_external(p_queue text, p_worker text) returns void security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off body e0a088bbfca893f4918ce8b009a66315 grant to deed_worker
function serve_queues(p_worker text, p_instance uuid, p_queues text[], p_for interval DEFAULT '00:00:30'::interval) returns void security definer set search_path=pg_catalog, pg_temp body 28b79ccd61df1b4be0197935e64254b3 grant to deed_worker
function set_consents(p_contacts uuid[], p_channels text[], p_purposes text[], p_states text[], p_sources text[], p_evidence jsonb[] DEFAULT NULL::jsonb[], p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns TABLE(n integer, contact_id uuid, state text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, jit=off body 023e3f48a33f6a0ac12950fe865fe804 grant to deed_admin, deed_app, deed_worker
function set_door(p_topic text, p_name text, p_door boolean DEFAULT true) returns void security definer set search_path=pg_catalog, pg_temp body 3a68ef369fb65ad6aededa50eea04289 grant to deed_admin
function set_subscription(p_topic text, p_name text, p_max_attempts integer DEFAULT NULL::integer, p_lease interval DEFAULT NULL::interval, p_backoff interval DEFAULT NULL::interval) returns void security definer set search_path=pg_catalog, pg_temp body 91e56d943595019235e7e4fc9fdeb682 grant to deed_admin
function set_topic(p_topic text, p_mode text DEFAULT NULL::text, p_lanes integer DEFAULT NULL::integer, p_ordered boolean DEFAULT NULL::boolean, p_retention interval DEFAULT NULL::interval) returns void security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s body c00b51623635c0a3bcfcd109df0c59c2 grant to deed_admin
function settle(p_ids uuid[], p_claims bigint[], p_kinds text[], p_message_ids text[], p_errors text[], p_after double precision[], p_worker text, p_base interval DEFAULT '00:00:05'::interval, p_jitter double precision[] DEFAULT '{0.5,1}'::double precision[], p_max_attempts integer DEFAULT 5, p_defer interval DEFAULT '00:01:00'::interval, p_give_up interval DEFAULT '24:00:00'::interval, p_leave boolean DEFAULT false) returns TABLE(id uuid, status text, attempts integer, process_after timestamp with time zone, in_doubt boolean, held boolean, resumed boolean, was text, destinations text[], busy boolean) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=1s, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 72006961e5254e06204e99c292d03806 grant to deed_worker
function settle_delivery(p_id uuid, p_decision text, p_reason text, p_actor text, p_message_id text DEFAULT NULL::text) returns text security definer set search_path=pg_catalog, pg_temp body 810b1c1e410b6cc2a5b11c68d1cb5d04 grant to deed_admin
function slot(p_base integer, p_key text, p_id bigint) returns integer body inline grant to deed_admin, deed_app, deed_worker
function start_and_claim(p_plan_ids text[], p_plan_versions text[], p_request_ids text[], p_inputs jsonb[], p_projects text[], p_environments text[], p_originals uuid[], p_parents uuid[], p_parent_steps text[], p_tenants uuid[], p_queues text[], p_worker text, p_limit integer, p_lease interval DEFAULT '00:00:30'::interval) returns TABLE(ordinal integer, run_id uuid, created boolean, status text, waits boolean, place integer, claim bigint, tenant_id uuid, step_id text, at_most_once boolean, plan_id text, plan_version text, plan_sha256 bytea, input jsonb) security definer set search_path=pg_catalog, pg_temp, lock_timeout=200ms body 0686812b7fd950e566ba923d7b645c2b grant to deed_worker
function start_here(p_on_new_cluster text, p_environment text) returns text security definer set search_path=pg_catalog, pg_temp body a48d492227b8312cc1d600d9fa18eaf3 grant to deed_worker
function start_requests(p_plan_ids text[], p_plan_versions text[], p_request_ids text[], p_inputs jsonb[], p_projects text[], p_environments text[], p_originals uuid[], p_parents uuid[], p_parent_steps text[], p_tenants uuid[]) returns TABLE(ordinal integer, run_id uuid, created boolean, status text) security definer set search_path=pg_catalog, pg_temp, lock_timeout=200ms body 2294b9a05ecc30e4fa405c0bdc589a63 grant to deed_admin, deed_app, deed_worker
function start_run(p_plan_id text, p_plan_version text, p_request_id text, p_input jsonb DEFAULT '{}'::jsonb, p_project text DEFAULT 'default'::text, p_environment text DEFAULT 'default'::text, p_original_run_id uuid DEFAULT NULL::uuid, p_parent_run_id uuid DEFAULT NULL::uuid, p_parent_step_id text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, OUT run_id uuid, OUT created boolean, OUT status text) returns record security definer set search_path=pg_catalog, pg_temp body 4fb7392be3671715ee43c282ef89c4a2 grant to deed_admin, deed_app, deed_worker
function start_runs(p_runs uuid[], p_adapter text DEFAULT NULL::text) returns TABLE(run_id uuid, status text) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body f4f919ac698ae5bbac3b55f77ec908bd grant to deed_worker
function status(p_most integer DEFAULT 100) returns TABLE(topic text, subscription text, pending bigint, due bigint, claimed bigint, dead bigint, delivered bigint, oldest_due_seconds double precision, parked bigint, blocked_keys bigint, lag bigint, at_least boolean, lanes bigint, lanes_held bigint) set search_path=pg_catalog, pg_temp body cd3ae9dd83ea7a241fd08c27ae94f9a4 grant to deed_admin, deed_worker
function stop_run(p_run uuid, p_reason text, p_by text DEFAULT NULL::text) returns boolean security definer set search_path=pg_catalog, pg_temp, jit=off body 6df9898d72aa1d2a17b4c6dff639d586 grant to deed_admin
function store_snapshots(p_runs uuid[], p_seqs bigint[], p_snapshots jsonb[], p_redacted boolean[], p_stale uuid[] DEFAULT '{}'::uuid[], p_expected bigint[] DEFAULT '{}'::bigint[], p_got bigint[] DEFAULT '{}'::bigint[]) returns SETOF uuid security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body ded1f4e48d163c3c7743f9aed52a1200 grant to deed_worker
function stream_states(p_id bigint) returns TABLE(subscription text, state text, worker text, delivered_at timestamp with time zone, lane integer, page bigint) set search_path=pg_catalog, pg_temp body 82e40dcd9d7aa9a17a605c2301b953ab grant to deed_admin, deed_worker
function subscribe(p_topic text, p_name text, p_from text DEFAULT NULL::text, p_max_attempts integer DEFAULT NULL::integer, p_lease interval DEFAULT NULL::interval, p_backoff interval DEFAULT NULL::interval) returns TABLE(subscription integer, made boolean, max_attempts integer, lease interval, start text, mode text, backoff interval) security definer set search_path=pg_catalog, pg_temp, lock_timeout=1s body a897087d1598d3c8a1b60a52fc9ed358 grant to deed_admin, deed_worker
function summarise_log() returns integer security definer set search_path=pg_catalog, pg_temp body dbdb708b902e57b558ba2ac72940ed56 grant to deed_worker
function suppress(p_channel text, p_addresses text[], p_reason text, p_actor text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_purpose text DEFAULT ''::text, p_expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone) returns bigint security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body dff04fd4ce482d38e645bd526572b8d8 grant to deed_admin, deed_app, deed_worker
function suppress_bad(p_ids uuid[], p_claims bigint[], p_kinds text[], p_worker text, p_leave boolean) returns uuid[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=1s, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body dac180789b648eae6eaee8adc4aec3f1
function suppressed(p_tenant uuid, p_channel text, p_address text, p_purpose text, p_at timestamp with time zone) returns TABLE(reason text) body inline
function suppressed_copy(p_tenant uuid, p_cc text[], p_purpose text, p_at timestamp with time zone) returns TABLE(reason text) body inline
function sweep_runs(p_limit integer, p_worker text) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body 2bb9f989bb5bd60e6d3d9d8b062aa0bf grant to deed_worker
function tail_window(p_from bigint, p_upto bigint, p_seen pg_snapshot, p_now pg_snapshot, p_topic text DEFAULT NULL::text, p_numbers integer DEFAULT 100000) returns TABLE(upto bigint, slots integer[], ids bigint[]) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_indexscan=off, jit=off body 2db8f8feea38a5ab9ecd5fb223b4c886 grant to deed_admin, deed_app, deed_worker
function take_back_messages(p_contacts uuid[]) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 4d4a8ddddb55406109447d9f1aea3a6a
function take_due(p_provider text, p_status text, p_limit integer, p_lanes text[], p_rooms integer[], p_room integer, p_bytes bigint, p_cost integer, p_pauses boolean, p_kind text, p_account text, p_places jsonb, p_batch integer DEFAULT 1, p_runs boolean DEFAULT true, OUT taken tid[], OUT walk jsonb, OUT calls integer[]) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off body 22fdd2feab634c6ec9330917c42c5ab4
function take_lanes(p_worker uuid, p_name text, p_subscriptions integer[], p_take boolean DEFAULT true, p_protocol integer DEFAULT 1, p_leases interval[] DEFAULT NULL::interval[]) returns TABLE(subscription integer, lane integer, slot_from integer, slot_upto integer, ordered boolean, fence bigint, give_back boolean, takeovers integer, last_window bigint) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off body 029d6fa2adfc5c9974e78477d0f1abcb grant to deed_worker
function take_probe(p_provider text, p_tenant uuid, p_lane text, p_id uuid, p_claim bigint) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan body 9285687a3ab24beb0c486ce3405f57d0
function take_receipts(p_receipts bigint[], p_ids bigint[]) returns void set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off body 462ac426a7095a05ee83c619f47cc319
function take_tenant(p_tenant uuid, p_what text, INOUT at_sub integer, INOUT at_id bigint, INOUT left_some boolean, p_limit integer, OUT did text, OUT taken jsonb) returns record set search_path=pg_catalog, pg_temp, jit=off body f0ee132ca0eddc9797893d614002ca66
function take_tenant_log(p_tenant uuid, INOUT at_id bigint, p_span bigint, OUT taken bigint, OUT more boolean) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_indexscan=off, jit=off body 534e62b0b5677b67eae04e1567e03ce1
function take_tenant_pending(p_tenant uuid, INOUT at_sub integer, INOUT at_id bigint, p_limit integer, OUT taken integer, OUT left_some boolean, OUT more boolean) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, enable_sort=off, jit=off body 54f7dfca58fdeaec33a6687b1e0a8387
function take_tenant_rows(p_tenant uuid, p_table text, p_limit integer, OUT did text, OUT taken jsonb) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_bitmapscan=off, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body acb29a51e5394e5f9640d5ea8120d94e
function take_turn(p_id uuid) returns void set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan body e194094725f5b035a33633155a08f152
function tally(p_most integer DEFAULT 20000) returns integer security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off body 05a702e3bbafb7fdca54e1eb97ce0753 grant to deed_worker
function tell_feedback(p_held uuid[], p_ids uuid[], p_events text[], p_ats timestamp with time zone[], p_reasons text[], p_codes text[]) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body a51cd0953091f81d6cfe4a902257f2c6
function tenant_of_call(p_call text, p_tenant uuid) returns uuid set search_path=pg_catalog, pg_temp body e951bd369b2fdf4b70534dd482885d46
function time_in(p_options jsonb, p_made timestamp with time zone, p_for timestamp with time zone, p_zone text, p_now timestamp with time zone, OUT due timestamp with time zone, OUT loud timestamp with time zone) returns record set search_path=pg_catalog, pg_temp body 4a654e11421b1f1def55602e57cffe60
function timeline() returns bigint body inline
function topics_of(p_slots integer[], p_ids bigint[]) returns jsonb set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body e112d534b7ca14b345654844ffbf3f00
function try_append_events(p_runs uuid[], p_types text[], p_steps text[], p_attempts integer[], p_engine_attempts integer[] DEFAULT NULL::integer[], p_emitted_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_data jsonb[] DEFAULT NULL::jsonb[], p_signals uuid[] DEFAULT NULL::uuid[], p_parents uuid[] DEFAULT NULL::uuid[], p_adapter text DEFAULT NULL::text) returns TABLE(ordinal integer, run_seq bigint, event_id uuid, repeated boolean) security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 5be2104e0962a74da000e08d70bef89f grant to deed_worker
function try_events(p_ids uuid[], p_events text[], p_event_ids text[], p_message_ids text[], p_addresses text[], p_ats timestamp with time zone[], p_reasons text[], p_codes text[], p_actor text, p_wait interval, OUT told jsonb, OUT busy uuid[]) returns record set search_path=pg_catalog, pg_temp body 185c86d4f1c43e7253a7d999c0d94ecf
function try_lock_keys(p_subscription integer, p_hashes bigint[]) returns bigint[] security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, lock_timeout=3s, jit=off body d3755196316826f9ae7c34f8fe034857
function unattended(p_subscriptions integer[], p_for interval) returns SETOF integer set search_path=pg_catalog, pg_temp body 04340716ceb54aff39d45a61cdb18d84 grant to deed_admin, deed_worker
function undeclared_between(p_topic text, p_from bigint, p_upto bigint, p_limit integer) returns TABLE(slot integer, id bigint, xid xid8, list_version bigint) set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_indexscan=off, enable_bitmapscan=on, jit=off body 266837df463dd1aedb4d3854c21d95f2
function unfinished(p_subscriptions integer[], p_horizon interval) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body ec42ff4e46ad408967e54f9c20f3447a grant to deed_worker
function unmerge_contacts(p_from uuid, p_reason text, p_actor text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid) returns uuid security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 72795b76c7e0d44fccd5a52c55d5f628 grant to deed_admin, deed_app, deed_worker
function unpunycode(p_ascii text) returns text set search_path=pg_catalog, pg_temp body 10edfcbc3c3a152b47ecadcc1d42ebda grant to deed_admin, deed_app, deed_worker
function unseen(p_from bigint, p_upto bigint, p_slot_from integer, p_slot_upto integer, p_since bigint, p_cur pg_snapshot, p_restored_id bigint DEFAULT 0, p_restored_h xid8 DEFAULT '0'::xid8, p_upper bigint DEFAULT NULL::bigint) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body c71f155f7662dba0b0994752b5f96de3
function unserved_queues() returns TABLE(queue text, steps bigint, oldest timestamp with time zone) security definer set search_path=pg_catalog, pg_temp, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body fcc20be4f414233e42e63995eb771a29 grant to deed_admin, deed_worker
function unsubscribe(p_delivery uuid, p_channel text, p_purpose text, p_contact uuid DEFAULT NULL::uuid, p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns text security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 75d60dea512c766f3b4024f173756920 grant to deed_worker
function unsuppress(p_channel text, p_addresses text[], p_reason text, p_actor text DEFAULT NULL::text, p_tenant uuid DEFAULT NULL::uuid, p_purpose text DEFAULT ''::text) returns bigint security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_custom_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 0f4533bbf0c0527419016bfee62203b2 grant to deed_admin, deed_app
function upsert_contacts(p_of integer[], p_types text[], p_values text[], p_data jsonb[], p_zones text[] DEFAULT NULL::text[], p_locales text[] DEFAULT NULL::text[], p_verified boolean[] DEFAULT NULL::boolean[], p_tenant uuid DEFAULT NULL::uuid, p_actor text DEFAULT NULL::text) returns TABLE(n integer, id uuid, outcome text, others uuid[]) security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan, enable_seqscan=on, enable_bitmapscan=on, enable_hashjoin=on, enable_mergejoin=on, work_mem=64MB body 784770df9479f033526dce0ace49c1b1 grant to deed_admin, deed_app, deed_worker
function variant_of(p_names text[], p_share integer, p_salt text, p_contact uuid) returns text set search_path=pg_catalog, pg_temp body 71a029f0148a6d69788ecea8a7993d00 grant to deed_admin, deed_app, deed_worker
function variants_problem(p_options jsonb) returns text set search_path=pg_catalog, pg_temp body d179ce42bec052f5a1212637e020ac49
function verify() returns TABLE(invariant text, subscription text, message_id bigint, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body 528a7cbff0d44982df000d957bc5adba grant to deed_admin, deed_worker
function verify_campaigns() returns TABLE(invariant text, tenant_id uuid, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body 58cf15c1a7ea292ff419a14d916b63a5 grant to deed_admin, deed_worker
function verify_deliveries() returns TABLE(invariant text, tenant_id uuid, detail text) set search_path=pg_catalog, pg_temp, jit=off body d0777abcfadeba0a674fe3e402272709 grant to deed_admin, deed_worker
function verify_messages() returns TABLE(invariant text, tenant_id uuid, detail text) set search_path=pg_catalog, pg_temp, jit=off body 0fa099269673c5b81fca7833535fb110 grant to deed_admin, deed_worker
function verify_plans() returns TABLE(invariant text, tenant_id uuid, detail text) set search_path=pg_catalog, pg_temp, jit=off body d41f8af5860759e6be71d039b96d8c2a grant to deed_admin, deed_worker
function verify_queues() returns TABLE(invariant text, subscription integer, message_id bigint, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body f032a50d271519ceb528419c08fcab96 grant to deed_admin, deed_worker
function verify_references() returns TABLE(invariant text, subscription integer, message_id bigint, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body 97925c6c6a0a4308df8af05f291581db grant to deed_admin, deed_worker
function verify_runs() returns TABLE(invariant text, tenant_id uuid, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body db36d45e2c27f911d7ac0c90ca40afd7 grant to deed_admin, deed_worker
function verify_steps() returns TABLE(invariant text, tenant_id uuid, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body 3de2696418992187f30d03ef362ec69e grant to deed_admin, deed_worker
function verify_streams() returns TABLE(invariant text, subscription integer, message_id bigint, detail text) set search_path=pg_catalog, pg_temp, enable_nestloop=off, jit=off body cb470b61ebf80494e99272417a836150 grant to deed_admin, deed_worker
function versions_of_requests(p_tenants uuid[], p_plan_ids text[], p_request_ids text[], p_projects text[], p_environments text[]) returns text[] set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body b746919ec04750b7ff3c7a8732f5e6f7
function wake_steps(p_run uuid DEFAULT NULL::uuid, p_place integer DEFAULT NULL::integer, p_limit integer DEFAULT 1000, OUT woken integer, OUT next_run uuid, OUT next_place integer) returns record security definer set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_seqscan=off, jit=off body 6e18a9c975f5e6e3adbac06a369d5ac2 grant to deed_worker
function was_read(p_subscription integer, p_lane integer, p_n bigint, p_slot integer, p_id bigint, p_xid xid8) returns TABLE(n bigint, passed boolean) set search_path=pg_catalog, pg_temp body dcfecb67607f0c9dd929edc56049d35d grant to deed_admin, deed_worker
function watch(p_seq bigint, p_subscriptions integer[], p_floors timestamp with time zone[], p_window bigint DEFAULT NULL::bigint, p_window_h xid8 DEFAULT NULL::xid8, p_slot_from integer[] DEFAULT NULL::integer[], p_slot_upto integer[] DEFAULT NULL::integer[]) returns TABLE(seq bigint, ready integer[], streams integer[], window_n bigint, window_h xid8, slots integer[], low bigint, late xid8[], whole boolean, subscription integer, place_slot integer, slot integer, id bigint, tenant_id uuid, key text, type text, content_type text, headers jsonb, payload bytea, created_at timestamp with time zone, due boolean) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, enable_sort=off, jit=off body 2e956134a8a0eae1c96c88a395217caa grant to deed_worker
function window_late(p_from bigint, p_from_h xid8, p_to bigint, p_to_h xid8, OUT xids xid8[], OUT low bigint) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_bitmapscan=off, enable_seqscan=off, jit=off body e1e3da22e9f59610eb3f49830a341be5 grant to deed_admin, deed_worker
function window_problem(p_options jsonb, p_scheduled_for timestamp with time zone) returns text set search_path=pg_catalog, pg_temp body 04f95fe5d5bd243b3fc60a5fd3548ef3
function without_addresses(p_text text, p_recipient text) returns text set search_path=pg_catalog, pg_temp body f6b1591f6198725a9fb0a402a63749fa
function write_beginnings(p_runs uuid[], p_tenants uuid[], p_versions text[], p_steps jsonb[], p_at timestamp with time zone[]) returns void set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 13e5378c7189bbb99a1246b55bf8aab2
function write_ends(p_runs uuid[], p_tenants uuid[], p_versions text[], p_statuses text[], p_changed boolean[], p_done bytea[], p_passed bytea[], p_failing boolean[], p_of integer[], p_types text[], p_steps text[], p_attempts integer[], p_engine integer[], p_begun timestamp with time zone[], p_data jsonb[], p_adapter text) returns boolean set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 55cc2a2a3992d91a1c030d6aaf46d829
function write_event(p_run uuid, p_type text, p_step text, p_attempt integer, p_engine_attempt integer, p_emitted_at timestamp with time zone, p_data jsonb, p_signal uuid, p_parent uuid, p_adapter text, OUT run_seq bigint, OUT event_id uuid) returns record set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body 345dd73138ae52dfacccb8f1f1fc5ce6
function write_events(p_runs uuid[], p_types text[], p_steps text[], p_attempts integer[], p_engine_attempts integer[] DEFAULT NULL::integer[], p_emitted_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], p_data jsonb[] DEFAULT NULL::jsonb[], p_signals uuid[] DEFAULT NULL::uuid[], p_parents uuid[] DEFAULT NULL::uuid[], p_adapter text DEFAULT NULL::text) returns TABLE(ordinal integer, run_seq bigint, event_id uuid, repeated boolean) set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, TimeZone=UTC, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off body f459bbe0aa356d374a79d0e8834e58dc
function write_winner(p_run uuid, p_variant text, p_due timestamp with time zone, p_actor text, p_reason text, p_details jsonb) returns void set search_path=pg_catalog, pg_temp body 9cc072ecf2380f3815a6f950f1c76dd3
