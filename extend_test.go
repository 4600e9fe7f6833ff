package deed_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// bounded is a worker's connection whose statements end after two seconds.
func bounded(t *testing.T, db *pgtest.DB) *pgx.Conn {
	t.Helper()
	conn := db.Conn(t, pgtest.Worker)
	if _, err := conn.Exec(t.Context(), `set statement_timeout = '2s'`); err != nil {
		t.Fatal(err)
	}
	return conn
}

// leftOpen is a transaction that has done what the statement does, and stays open.
func leftOpen(t *testing.T, db *pgtest.DB, role pgtest.Role, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := db.Pool(role).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A renewal does not wait for whoever claims, discards or locks one of its messages in a
// transaction that is left open: the others' leases are renewed. The one that is locked is
// this worker's while its lease lasts.
func TestContract_O14_ARenewalWaitsForNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		role   pgtest.Role
		sql    string
		isOver bool
		want   int
	}{
		{"claim", pgtest.Worker, `select deed.claim('orders', 'other', 1, 's') where $1::bigint > 0`, true, 1},
		{"discard", pgtest.Admin, `select deed.discard($1, 'r')`, true, 1},
		{"lock", pgtest.Owner, `select from deed.pending where id = $1 for update`, false, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			id := subscribe(t, db, "orders", "s")
			publish(t, db, message("orders", 1), message("orders", 2))
			worker := bounded(t, db)
			got := claim(t, db.Pool(pgtest.Worker), "orders", "w", 2)
			if c.isOver {
				db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1`, id)
			}
			until := func() []time.Time {
				return pgtest.One[[]time.Time](t, db.Pool(pgtest.Owner), `select array_agg(lease_until order by id) from deed.pending where subscription = $1`, id)
			}
			before := until()
			other := leftOpen(t, db, c.role, c.sql, got[0].ID)
			kept := pgtest.One[[]int64](t, worker, `select deed.extend($1, $2, $3)`, id, got[0].Claim, ids(got))
			slices.Sort(kept)
			same(t, "the messages that are still this worker's", kept, ids(got)[2-c.want:])
			after := until()
			if !after[0].Equal(before[0]) || after[1].Equal(before[1]) {
				t.Errorf("leases until %v, before the renewal %v; the second is to be renewed", after, before)
			}
			if err := other.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept = pgtest.One[[]int64](t, worker, `select deed.extend($1, $2, $3)`, id, got[0].Claim, ids(got))
			slices.Sort(kept)
			same(t, "those that are once nobody has one locked", kept, ids(got))
		})
	}
}

// What became of a message that somebody keeps locked is not waited for without end: who
// records it hears so, and brings the others without it.
func TestFinish_OneThatStaysLocked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1), message("orders", 2))
	worker := bounded(t, db)
	got := claim(t, db.Pool(pgtest.Worker), "orders", "w", 2)
	leftOpen(t, db, pgtest.Owner, `select from deed.pending where id = $1 for update`, got[0].ID)
	for what, sql := range map[string]string{
		"finish": `select deed.finish($1, $2, $3)`,
		"fail":   `select count(*) from deed.fail($1, $2, $3, '{later,later}')`,
	} {
		if _, err := worker.Exec(t.Context(), sql, id, got[0].Claim, ids(got)); sqlState(err) != "55P03" {
			t.Errorf("%s: %v, want that it is locked", what, err)
		}
	}
	same(t, "the other one finished", finish(t, db.Pool(pgtest.Worker), id, got[0].Claim, got[1].ID), 1)
}

// A worker whose message somebody keeps locked goes on with the others.
func TestRelay_AMessageThatStaysLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	gate, first := make(chan struct{}), make(chan int64, 1)
	var calls atomic.Int64
	handler := deed.SinkFunc(func(_ context.Context, m deed.Message) error {
		if calls.Add(1) == 1 {
			first <- m.Seq
			<-gate
		}
		return nil
	})
	c, _ := run(t, db, deed.Options{
		Topics:        []deed.Topic{{Name: "orders"}},
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: handler, Concurrency: 4}},
	})
	publish(t, db, message("orders", 1))
	other := leftOpen(t, db, pgtest.Owner, `select from deed.pending where id = $1 for update`, <-first)
	close(gate)
	time.Sleep(100 * time.Millisecond) // its outcome is being recorded
	started := time.Now()
	for n := range 3 {
		publish(t, db, message("orders", n))
		eventually(t, "the others to be delivered", func() bool { return c.Stats()[0].Delivered > int64(n) })
	}
	if took := time.Since(started); took > 8*time.Second {
		t.Errorf("three others took %v beside one that is locked", took)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all to be delivered", func() bool { return c.Stats()[0].Delivered == 4 })
}
