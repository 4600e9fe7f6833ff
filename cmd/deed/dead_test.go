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
	p := start(t, db.URL(pgtest.Admin), append(args, "--rate", "50")...)
	eventually(t, "some messages to be back", func() bool { return back() > 0 })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	left := 300 - back()
	if left == 0 {
		t.Fatal("it was done before it was killed")
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set attempts = 7 where dead_at is null`)
	p = start(t, db.URL(pgtest.Admin), append(args, "--rate", "100000")...)
	<-p.done
	if p.err != nil {
		t.Fatalf("going on: %v\n%s", p.err, p.errOut.String())
	}
	if n := back(); n != 300 {
		t.Errorf("%d messages are back, want all 300", n)
	}
	again := pgtest.One[int](t, owner, `select count(*) from deed.pending where attempts = 7`)
	if again != 300-left {
		t.Errorf("%d of the %d that were back were put back again", 300-left-again, 300-left)
	}
	if n := pgtest.One[int](t, owner, `select sum(affected) from deed.audit_log where action = 'redrive'`); n != 300 {
		t.Errorf("the audit log counts %d", n)
	}
}
