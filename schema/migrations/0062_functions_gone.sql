-- breaking: no
-- What functions took before, where no migration has taken it away: with two of a name
-- nobody could go on from such a schema.
drop function if exists deed.claim_doubts(text, text, int, interval, boolean, boolean, interval, interval);
drop function if exists deed.delivery_id(timestamptz);
drop function if exists deed.finish_page(int, int, bigint, bigint, bigint, xid8, bigint, xid8, int, bigint, int, bigint, bigint, text, bigint[], int[], bigint[], text[], interval[], text[]);
drop function if exists deed.leave_relays(uuid);
drop function if exists deed.redrive(text, text, uuid, bigint[], int, boolean);
drop function if exists deed.set_subscription(text, text, int, interval);
drop function if exists deed.settle(uuid[], bigint[], text[], text[], text[], float8[], text, interval, float8[]);
drop function if exists deed.subscribe(text, text, text, int, interval);
drop function if exists deed.tail_window(bigint, bigint, pg_snapshot, pg_snapshot, text, boolean);
drop function if exists deed.watch(bigint, int[], timestamptz[]);
drop function if exists deed.watch(bigint, int[], timestamptz[], bigint, xid8);
