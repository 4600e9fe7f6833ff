package deed_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A finish that waits for the extension of the same lease finishes all the
// same, with one message or some.
func TestFinish_WhileItsLeaseIsExtended(t *testing.T) {
	t.Parallel()
	for _, extended := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(extended), func(t *testing.T) {
			t.Parallel()
			finishBesideExtend(t, extended)
		})
	}
}

func finishBesideExtend(t *testing.T, extended int) {
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
	held := pgtest.One[[]int64](t, tx, `select deed.extend($1, $2, $3)`, id, got[0].Claim, ids(got)[:extended])
	if len(held) != extended {
		t.Fatalf("extended %v, want %d", held, extended)
	}
	conn := db.Conn(t, pgtest.Worker)
	finished := make(chan int, 1)
	go func() {
		var n int
		if err := conn.QueryRow(ctx, `select deed.finish($1, $2, $3, 7)`, id, got[0].Claim, ids(got)).Scan(&n); err != nil {
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
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select sum(lost) || ' ' || sum(failed) from deed.receipts`); got != "0 7" {
		t.Errorf("lost and failed: %s, want 0 7", got)
	}
}
