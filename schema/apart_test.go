package schema_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// An index is built beside those who write: an open transaction that has written
// to the table makes the migrator wait, and nobody else. What another migrator
// has left half built is built again.
func TestUp_IndexBesideWriters(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `delete from deed.migrations where name = '0014_free_messages'`)
	db.Exec(t, pgtest.Owner, `drop index deed.pending_free_idx`)
	db.Exec(t, pgtest.Owner, `insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash)
		select 0, 0, i, gen_random_uuid(), now(), 1 from generate_series(1, 2) i`)
	// A unique one fails, and stays as an invalid index.
	if _, err := db.Conn(t, pgtest.Owner).Exec(ctx, `create unique index concurrently pending_free_idx on deed.pending (subscription, key_hash)`); err == nil {
		t.Fatal("the index was built")
	}
	tx, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 0, 0, 10, gen_random_uuid(), now()`); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	conn := db.Conn(t, pgtest.Owner)
	go func() {
		_, err := schema.Up(ctx, conn)
		migrated <- err
	}()
	waiting := func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')`, int32(conn.PgConn().PID()))
	}
	if !pgtest.Wait(pgtest.Patience, waiting) {
		t.Fatal("the migrator does not wait for the open transaction")
	}
	db.Exec(t, pgtest.Owner, `set lock_timeout = '1s'; insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 0, 0, 11, gen_random_uuid(), now(); reset lock_timeout`)
	if !waiting() {
		t.Error("the migrator has ended before the open transaction")
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if differences, err := schema.Validate(ctx, db.Conn(t, pgtest.Owner)); len(differences) != 0 || err != nil {
		t.Errorf("the schema differs: %q, %v", differences, err)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.pending`)
}

// The index of every partition is built beside those who write, where it is missing
// or half built, and again only there; a partition that was made meanwhile by
// functions that do not know the index gets it when partitions are next kept.
func TestUp_IndexOfEachPartition(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	indexes := func() int {
		return pgtest.One[int](t, conn, `
			select count(*) from pg_class c join pg_index i on i.indexrelid = c.oid
			where c.relname ~ '^log_p[0-9]+_id_idx$' and i.indisvalid`)
	}
	if n := indexes(); n != 3 {
		t.Fatalf("%d partitions of a new installation have the index, want 3", n)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.migrations where name = '0041_log_by_number'`)
	db.Exec(t, pgtest.Owner, `drop index deed.log_p0_id_idx; drop index deed.log_p2_id_idx`)
	db.Exec(t, pgtest.Owner, `update pg_index set indisvalid = false where indexrelid = 'deed.log_p1_id_idx'::regclass`)
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select deed.publish('orders', '{}')`); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() {
		_, err := schema.Up(ctx, conn)
		migrated <- err
	}()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')`, int32(conn.PgConn().PID()))
	}) {
		t.Fatal("the migrator does not wait for the open transaction")
	}
	db.Exec(t, pgtest.App, `set lock_timeout = '1s'; select deed.publish('orders', '{}'); reset lock_timeout`)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if n := indexes(); n != 3 {
		t.Errorf("%d partitions have the index, want 3", n)
	}
	db.Exec(t, pgtest.Owner, `drop index deed.log_p2_id_idx`)
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`)
	if n := indexes(); n != 3 {
		t.Errorf("once partitions are kept %d have the index, want 3", n)
	}
}

// Where a closed partition ends is found by halves, also if it has one message or
// none.
func TestUp_FindsWherePartitionsEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	day := func(messages int) {
		for range messages {
			db.Exec(t, pgtest.App, `select deed.publish('orders', '{}')`)
		}
		db.Exec(t, pgtest.Owner, `
			update deed.partitions set opened_at = opened_at - interval '25 hours';
			select setval('deed.log_seq', greatest(pg_sequence_last_value('deed.log_seq'), pg_sequence_last_value('deed.log_seq') / 68719476736 * 68719476736 + 2));
			select deed.keep_partitions()`)
	}
	day(777)
	day(0)
	day(1)
	want := pgtest.One[[]int64](t, owner, `
		select array_agg(coalesce((select max(l.id) from deed.log l where l.id between p.from_id and p.upto_id - 1), p.from_id) order by p.n) from deed.partitions p where p.n < 3`)
	if got := pgtest.One[[]int64](t, owner, `select array_agg(last_id order by n) from deed.partitions where n < 3 and last_id >= $1`, want[0]); len(got) != 3 {
		t.Errorf("as the partitions were closed it is noted of %v, of which the messages end at %v", got, want)
	}
	db.Exec(t, pgtest.Owner, `update deed.partitions set last_id = null`)
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	_, search, _ := strings.Cut(migrations[44].SQL, "\n-- Of those that are closed")
	db.Exec(t, pgtest.Owner, "-- "+search)
	if got := pgtest.One[[]int64](t, owner, `select array_agg(last_id order by n) from deed.partitions where n < 3`); !slices.Equal(got, want) {
		t.Errorf("the migration finds that the partitions end at %v, they do at %v", got, want)
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.partitions where n >= 3 and last_id is not null`); n > 0 {
		t.Errorf("it says of %d that are not closed where they end", n)
	}
}

// The log moves to the next partition with the transaction that notes where the last one ends, or not at all: what comes to
// nothing half-way, as beside somebody who detaches a partition, is made again.
func TestPartitions_AreOpenedWholeOrNot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, worker := db.Pool(pgtest.Owner), db.Conn(t, pgtest.Worker)
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`) // the template may be of the week before
	for range 3 {
		db.Exec(t, pgtest.App, `select deed.publish('orders', '{}')`)
	}
	db.Exec(t, pgtest.Owner, `update deed.partitions set opened_at = opened_at - interval '25 hours'`)
	detaching, err := db.Conn(t, pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = detaching.Rollback(context.Background()) }()
	if _, err := detaching.Exec(t.Context(), `lock table deed.log in share update exclusive mode`); err != nil {
		t.Fatal(err)
	}
	_, err = worker.Exec(t.Context(), `select deed.keep_partitions()`)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
		t.Fatalf("beside somebody who has the log's lock: %v", err)
	}
	if err := detaching.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, worker, `select deed.keep_partitions()`); n != 1 {
		t.Errorf("made %d partitions then, want 1", n)
	}
	if !pgtest.One[bool](t, owner, `select pg_sequence_last_value('deed.log_seq') = 68719476736 and (select p.last_id from deed.partitions p where p.n = 0) = (select max(l.id) from deed.log l)`) {
		t.Error("the log is not in the next partition, or where the last one ends is not noted")
	}
}

// Of those who build an index at the same time none takes it away from another that has
// built it, whatever each had seen before.
func TestUp_RacingBuilders(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.New(t)
	conns := make([]*pgx.Conn, 8)
	for i := range conns {
		conns[i] = db.Conn(t, pgtest.Owner)
	}
	const sql = `create index concurrently raced_idx on deed.audit_log (at)`
	for round := range 15 {
		var all sync.WaitGroup
		for _, conn := range conns {
			all.Go(func() {
				if _, err := schema.BuildIndex(ctx, conn, 9000, "raced_idx", sql); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				// Whoever returns says that it is there.
				if !pgtest.One[bool](t, db.Pool(pgtest.Owner), `select coalesce((select indisvalid from pg_index where indexrelid = to_regclass('deed.raced_idx')), false)`) {
					t.Errorf("round %d: there is no valid index", round)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		db.Exec(t, pgtest.Owner, `drop index deed.raced_idx`)
	}
}

// An index that is not valid yet stays while somebody's statement that builds it has not ended: its lock is
// free just before the commit that makes it valid.
func TestUp_LeavesWhatIsBeingCommitted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	builder, other := db.Conn(t, pgtest.Owner), db.Conn(t, pgtest.Owner)
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (actor, action, subject_type) select 'ann', 'look', 'topic' from generate_series(1, 2)`)
	if _, err := builder.Exec(t.Context(), `create unique index concurrently raced_idx on deed.audit_log ((1))`); err == nil {
		t.Fatal("there is a valid index") // else it is half built
	}
	const sql = `select pg_sleep(600)` // in its stead, until it is cancelled: it holds no lock, as who commits
	ended := make(chan error, 1)
	go func() { // ends with the statement
		_, err := builder.Exec(t.Context(), sql)
		ended <- err
	}()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where pid = $1 and state = 'active' and query = $2)`, int32(builder.PgConn().PID()), sql)
	}) {
		t.Fatal("the statement does not run")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := schema.BuildIndex(ctx, other, 9000, "raced_idx", sql); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("built beside another: %v", err)
	}
	if !pgtest.One[bool](t, db.Pool(pgtest.Owner), `select to_regclass('deed.raced_idx') is not null`) {
		t.Error("it was put aside while its builder was at it")
	}
	db.Exec(t, pgtest.Owner, `select pg_cancel_backend($1)`, int32(builder.PgConn().PID()))
	err := <-ended
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "57014" {
		t.Errorf("the builder ended with %v", err)
	}
}
