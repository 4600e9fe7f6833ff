package deed_test

import (
	"context"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A finish that waits for the extension of the same lease finishes all the
// same, with one message or some.
func TestFinish_WhileItsLeaseIsExtended(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	for n := range 5 {
		publish(t, db, message("orders", n))
	}
	worker := db.Pool(pgtest.Worker)
	got := claim(t, worker, "orders", "w", 5)
	tx, err := worker.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	held := pgtest.One[[]int64](t, tx, `select deed.extend($1, $2, $3)`, id, got[0].Claim, ids(got)[:3])
	if len(held) != 3 {
		t.Fatalf("extended %v, want 3", held)
	}
	conn := db.Conn(t, pgtest.Worker)
	finished := make(chan int, 1)
	go func() {
		var n int
		if err := conn.QueryRow(ctx, `select deed.finish($1, $2, $3)`, id, got[0].Claim, ids(got)).Scan(&n); err != nil {
			t.Error(err)
		}
		finished <- n
	}()
	eventually(t, "the finish to wait", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (
			select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
		)`)
	})
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := <-finished; n != 5 {
		t.Errorf("finished %d of 5", n)
	}
	if lost := pgtest.One[int](t, db.Pool(pgtest.Owner), `select coalesce(sum(lost), 0)::int from deed.receipts`); lost != 0 {
		t.Errorf("%d count as lost", lost)
	}
}
