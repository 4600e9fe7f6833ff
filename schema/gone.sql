-- What functions took before: dropped in the transaction that makes them as they are now,
-- so that nobody who calls one finds none.
drop function if exists deed.reserve(text[], text[], text[], jsonb[], bytea[], text[], text[], timestamptz[], text[], uuid[], uuid[], int[], timestamptz[], text[], uuid, text);
drop function if exists deed.look_at_deliveries(uuid, int, int, text, text, uuid, text, boolean);
drop function if exists deed.export_erasures(int);
drop function if exists deed.claim_messages(text, int, interval, int, text);
drop function if exists deed.accept_messages(text, text[], text[], text[], text[], text[], text[], text, text, uuid, text);
drop function if exists deed.take_due(text, text, int, text[], int[], int, bigint, int, boolean, text, text, jsonb);
drop function if exists deed.claim_deliveries(text, text, int, interval, text[], int[], int, bigint, jsonb, int);
drop function if exists deed.claim_doubts(text, text, int, interval, boolean, boolean, interval, interval, int, text, text, boolean, text[], int[], int, bigint, jsonb);
drop function if exists deed.attempt(uuid[], bigint[], bytea[], interval, interval, text, text, text, boolean);
drop function if exists deed.claim_deliveries(text, text, int, interval, text[], int[], int, bigint, jsonb, int, int);
drop function if exists deed.take_due(text, text, int, text[], int[], int, bigint, int, boolean, text, text, jsonb, int);
drop function if exists deed.due_runs(text, text, uuid, uuid, uuid, int);
drop function if exists deed.store_snapshots(uuid[], bigint[], jsonb[], uuid[], bigint[], bigint[]);
drop function if exists deed.replace_snapshots(uuid, bigint, jsonb);
drop function if exists deed.add_audience_members(uuid, bigint, text[], jsonb[], text[], uuid[], uuid, text);
drop function if exists deed.plan_graph(bytea);
drop function if exists deed.erase_deliveries(uuid[], text);
drop function if exists deed.record_events(text, text, text, uuid[], text[], text[], text[], text[], text[], timestamptz[], text[], text[], text);
drop function if exists deed.announce_steps(uuid[], int[], bigint[], timestamptz[], text);
drop function if exists deed.version_of_request(uuid, text, text, text, text);
drop function if exists deed.run_ends(uuid, boolean);
drop function if exists deed.due_tenants(text, text, uuid, uuid, int);
drop function if exists deed.due_runs(text, text, uuid, uuid, uuid, int, uuid[]);
drop function if exists deed.take_lanes(uuid, text, int[], boolean, int);
drop function if exists deed.unseen(bigint, bigint, int, int, bigint, pg_snapshot, bigint, xid8);
drop function if exists deed.look_at_providers(int);
