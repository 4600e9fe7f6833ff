package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/deedhq/deed/admin"
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

// A request that names its message by the id is what it was when it is given again after the message's content is gone, and puts nothing back
// twice; an id that a request has not had is looked for as ever.
func TestRedrive_GivenAgainWhenItsMessageIsGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `select deed.publish('orders', '{}') from generate_series(1, 2)`)
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now(), last_error = 'down'`)
	var ids [2]string
	for i, seq := range pgtest.One[[]int64](t, db.Pool(pgtest.Owner), `select array_agg(id order by id) from deed.log`) {
		m, err := client.Message(t.Context(), strconv.FormatInt(seq, 10), false)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = m.ID.String()
	}
	redrive := func(args ...string) string {
		p := start(t, db.URL(pgtest.Admin), append([]string{"dead", "redrive"}, args...)...)
		<-p.done
		return fmt.Sprintf("%d: %s%s", p.cmd.ProcessState.ExitCode(), p.out.String(), p.errOut.String())
	}
	has := func(name, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	has("the first time", redrive("--id", ids[0], "--request", "inc-211"), "0: 1 message redriven\n")
	db.Exec(t, pgtest.Worker, `select deed.finish(0, claim, ids) from (select claim, array_agg(id) as ids from deed.claim(null, 'w', 10) group by claim) c`)
	db.Exec(t, pgtest.Owner, `insert into deed.purges (id) select min(id) from deed.log; select deed.purge()`)

	has("given again", redrive("--id", ids[0], "--request", "inc-211"), "0: 1 message redriven\n")
	has("with another message", redrive("--id", ids[1], "--request", "inc-211"), "was for other messages")
	has("with another request", redrive("--id", ids[0], "--request", "inc-212"), "there is no message "+ids[0])
	has("only counted", redrive("--id", ids[0], "--request", "inc-211", "--dry-run"), "0: 0 messages would be redriven")
	has("without a request", redrive("--id", ids[0]), "there is no message "+ids[0])
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select sum(affected) from deed.audit_log where action = 'redrive'`); n != 1 {
		t.Errorf("the audit log counts %d", n)
	}
}
