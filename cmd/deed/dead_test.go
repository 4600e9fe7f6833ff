package main

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A redrive that is killed in the middle goes on when its command is given
// again, and puts no message back twice.
func TestRedrive_KilledInTheMiddle(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	db.Exec(t, pgtest.Owner, `select deed.publish('orders', '{}') from generate_series(1, 300)`)
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now(), last_error = 'down'`)
	back := func() int {
		return pgtest.One[int](t, owner, `select count(*) from deed.pending where dead_at is null`)
	}
	args := []string{"dead", "redrive", "--topic", "orders", "--request", "inc-211"}
	p := start(t, db.URL(pgtest.Admin), append(args, "--rate", "5")...)
	eventually(t, "some messages to be back", func() bool { return back() > 0 })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	// Its last statement may still be running: what that puts back is not marked.
	marked := pgtest.One[int](t, owner, `with m as (update deed.pending set attempts = 7 where dead_at is null returning 1) select count(*) from m`)
	if marked == 300 {
		t.Fatal("it was done before it was killed")
	}
	p = start(t, db.URL(pgtest.Admin), append(args, "--rate", "100000")...)
	<-p.done
	if p.err != nil {
		t.Fatalf("going on: %v\n%s", p.err, p.errOut.String())
	}
	if n := back(); n != 300 {
		t.Errorf("%d messages are back, want all 300", n)
	}
	again := pgtest.One[int](t, owner, `select count(*) from deed.pending where attempts = 7`)
	if again != marked {
		t.Errorf("%d of the %d that were back were put back again", marked-again, marked)
	}
	if n := pgtest.One[int](t, owner, `select sum(affected) from deed.audit_log where action = 'redrive'`); n != 300 {
		t.Errorf("the audit log counts %d", n)
	}
}
