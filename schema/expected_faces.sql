app: view public.outbox with security_invoker=true
app:   column id uuid
app:   column tenant_id uuid
app:   column topic text
app:   column payload jsonb
app:   column created_at timestamp with time zone
app:   column delivered_at timestamp with time zone
app:   column processing_token uuid
app:   column attempts integer
app:   trigger outbox_deleted 8 app.outbox_written O
app:   trigger outbox_written 93 app.outbox_written O
app:   grant delete, insert, select, update to deed_admin
app:   grant delete, insert, select, update to deed_worker
app:   grant insert, select to deed_app
app:   grant update (id, tenant_id, topic, payload, created_at, delivered_at, processing_token, attempts) to deed_app
app: function app.outbox_claim(p_limit integer, p_token uuid, p_tenant uuid) returns SETOF outbox set search_path=pg_catalog, pg_temp body 6fdb9cb0caee93fa66bd39f42af0df01 grant to deed_worker
app: function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns integer set search_path=pg_catalog, pg_temp body ae69fae25c843e5c369f8ca5f981cb76 grant to deed_worker
app: function app.outbox_written() returns trigger set search_path=pg_catalog, pg_temp body 6394c81f5e807a35a948b9eb00fb4e93
contacts: view public.contact_identities with security_invoker=true
contacts:   column tenant_id uuid
contacts:   column contact_id uuid
contacts:   column type text
contacts:   column value text
contacts:   column verified_at timestamp with time zone
contacts:   column created_at timestamp with time zone
contacts:   trigger identity_written 93 deed.identity_written O
contacts:   grant delete, insert, select, update to deed_admin
contacts:   grant delete, insert, select, update to deed_worker
contacts:   grant insert, select to deed_app
contacts:   grant update (tenant_id, contact_id, type, value, verified_at, created_at) to deed_app
m10: view m10_recovery.outbox with security_invoker=true
m10:   column id bigint
m10:   column aggregate_type text
m10:   column aggregate_id text
m10:   column event_type text
m10:   column payload jsonb
m10:   column created_at timestamp with time zone
m10:   column processed_at timestamp with time zone
m10:   column retry_count integer
m10:   column process_after timestamp with time zone
m10:   column claimed_at timestamp with time zone
m10:   column claimed_by text
m10:   trigger outbox_deleted 8 m10_recovery.outbox_written O
m10:   trigger outbox_written 93 m10_recovery.outbox_written O
m10:   grant delete, insert, select, update to deed_admin
m10:   grant delete, insert, select, update to deed_worker
m10:   grant insert, select to deed_app
m10:   grant update (id, aggregate_type, aggregate_id, event_type, payload, created_at, processed_at, retry_count, process_after, claimed_at, claimed_by) to deed_app
m10: function m10_recovery.claim_outbox_events(p_processor_id text, p_batch_size integer DEFAULT 10) returns TABLE(id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, retry_count integer) set search_path=pg_catalog, pg_temp body f36f9fa363706363768df19442f82dfc grant to deed_worker
m10: function m10_recovery.complete_outbox_event(p_event_id bigint, p_processor_id text, p_success boolean, p_error text DEFAULT NULL::text) returns void security definer set search_path=pg_catalog, pg_temp body c0b1d0c686bb53061878cbbe1144ea7a grant to deed_worker
m10: function m10_recovery.outbox_written() returns trigger set search_path=pg_catalog, pg_temp body 336bf2c287736e55c8a95f1c7b281f6b
m10: function m10_recovery.publish_outbox(p_aggregate_type text, p_aggregate_id text, p_event_type text, p_payload jsonb) returns bigint set search_path=pg_catalog, pg_temp body e4a976e9378b46bce6dd0a98733fccd2 grant to deed_admin, deed_app, deed_worker
