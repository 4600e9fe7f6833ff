package delivery_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// begun is a transaction that is left open, in which these were done.
func begun(t testing.TB, db *pgtest.DB, role pgtest.Role, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := db.Conn(t, role).Begin(context.Background())
	if err == nil {
		_, err = tx.Exec(context.Background(), sql, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func ends(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// waiting is how many sessions of the test wait for a lock.
func waiting(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
}

// beside runs a statement of the worker in a session of its own, and returns what waits for its end.
func beside(t testing.TB, db *pgtest.DB, sql string, args ...any) (end func()) {
	t.Helper()
	conn := db.Conn(t, pgtest.Worker)
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), sql, args...)
		result <- err
	}()
	return func() {
		t.Helper()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	}
}

// A claim that had looked for pauses before one began, and waited, makes nothing of it its probe: nobody is called in a pause that has just begun.
func TestContract_D6_APauseThatBeginsDuringAClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	opts := patient(newFake())
	o := opts.Providers["fake"]
	o.Rate = 1000
	opts.Providers["fake"] = o
	if err := ledger(t, db, opts).Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	mails(t, db, 3)
	open := begun(t, db, pgtest.Owner, `select from deed.rate_limits where provider = 'fake' for update`)
	claimed := beside(t, db, `select id from deed.claim_deliveries('fake', 'w', 10, '1 minute')`)
	eventually(t, "the claim to wait", func() bool { return waiting(t, db) == 1 })
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, since, until, why) values ('fake', clock_timestamp(), clock_timestamp() + interval '1 hour', 'it is down')`)
	ends(t, open)
	claimed()
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.channel_outbox where claim is not null`); n != 3 {
		t.Fatalf("%d were claimed before it", n)
	}
	if probes := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(probe)::int from deed.pauses`); probes != 0 {
		t.Error("one of them is the probe of a pause that has an hour to go")
	}
}

// Of two relays that fail at once, what the second one was told counts, too: a service that asks to be left alone for ten minutes is.
func TestContract_D6_RetryAfterOfTheSecond(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mails(t, db, 2)
	const claim = `select string_agg(id || ' ' || claim, '') from deed.claim_deliveries('fake', 'w', 1, '1 minute')`
	const pause = `
		select from deed.pause('fake', array[split_part($1, ' ', 1)::uuid], array[split_part($1, ' ', 2)::bigint], '{""}', '{down}', array[$2::text::float8], '{true}')`
	one, two := pgtest.One[string](t, db.Pool(pgtest.Worker), claim), pgtest.One[string](t, db.Pool(pgtest.Worker), claim)
	open := begun(t, db, pgtest.Worker, pause, one, nil)
	second := beside(t, db, pause, two, "600")
	eventually(t, "the second to wait", func() bool { return waiting(t, db) == 1 })
	ends(t, open)
	second()
	if left := pgtest.One[float64](t, db.Pool(pgtest.Owner), `select extract(epoch from until - clock_timestamp())::float8 from deed.pauses`); left < 500 {
		t.Errorf("it is left alone for %.0fs", left)
	}
}

// What was called through another account, and is answered after the name has gone over to this one, pauses nobody:
// neither where the new one's registration is committed, nor where it is under way.
func TestContract_D6_TheOldAccountsAnswersPauseNobody(t *testing.T) {
	t.Parallel()
	const (
		register = `select deed.register_provider('fake', 'k', 'domain', null, false, '{}', '{}', '{}', 'w', $1)`
		claim    = `select string_agg(id || ' ' || claim, '') from deed.claim_deliveries('fake', 'w', 1, '1 minute')`
		attempt  = `select status from deed.attempt(array[split_part($1, ' ', 1)::uuid], array[split_part($1, ' ', 2)::bigint], array['{}'::bytea], null, '1 minute', 'w', 'k', 'a')`
		pause    = `select from deed.pause('fake', array[split_part($1, ' ', 1)::uuid], array[split_part($1, ' ', 2)::bigint], array[$2], '{the quota is used up}', '{3600}', '{true}', p_until => array[$3::text])`
	)
	for _, c := range []struct {
		what, account, destination string
		quota                      any
		meanwhile                  bool
		pauses                     int
	}{
		{"its own", "a", "", "month", false, 1},
		{"a quota", "b", "", "month", false, 0},
		{"an outage", "b", "", nil, false, 0},
		{"a lane's", "b", "example.com", nil, false, 0},
		{"under way", "b", "", "month", true, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
			pgtest.One[bool](t, worker, register, "a")
			mails(t, db, 1)
			called := pgtest.One[string](t, worker, claim)
			if got := pgtest.One[string](t, worker, attempt, called); got != "sending" {
				t.Fatal(got)
			}
			pauses := func() int { return pgtest.One[int](t, owner, `select count(*) from deed.pauses`) }
			if c.meanwhile {
				open := begun(t, db, pgtest.Worker, register, c.account)
				answered := beside(t, db, pause, called, c.destination, c.quota)
				eventually(t, "the answer to wait, or to be told", func() bool { return waiting(t, db) == 1 || pauses() == 1 })
				ends(t, open)
				answered()
			} else {
				pgtest.One[bool](t, worker, register, c.account)
				db.Exec(t, pgtest.Worker, pause, called, c.destination, c.quota)
			}
			if n := pauses(); n != c.pauses {
				t.Errorf("%d pauses, want %d", n, c.pauses)
			}
		})
	}
}

// A reservation that began after the erasing transaction got its id, and before the erasure, is waited for as others are.
func TestContract_D12_LateCommitsOfLaterTransactions(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	of := person(t, db, mail("ann@example.com"))
	db.Providers(t, "fake", "fake")
	erasing := begun(t, db, pgtest.App, `select pg_current_xact_id()`)
	late := begun(t, db, pgtest.App, `select`)
	reserved, err := delivery.Reserve(t.Context(), late, email("ann@example.com", "late"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := erasing.Exec(t.Context(), `select deed.erase_contact($1::text::uuid, 'asked for on paper, file 12', 'operator')`, of); err != nil {
		t.Fatal(err)
	}
	ends(t, erasing)
	for range 3 {
		if n := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.erase_step(100, 'keeper')`); n != 0 {
			t.Errorf("it went on beside a transaction that may have reserved: %d", n)
		}
	}
	ends(t, late)
	erased(t, db, 100)
	if e := entry(t, db, reserved[0].ID); e.Status != delivery.Skipped || e.Recipient != "" {
		t.Errorf("what came late: %+v", e)
	}
}

// An address that is suppressed after its contact was erased, by who had not seen that or still has a delivery to it, goes on under its mark as well.
func TestContract_D12_SuppressedOnceErased(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"a bounce before its delivery is emptied", "somebody who has not seen it"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			of := person(t, db, mail("cat@example.com"))
			l, stop := run(t, db, said(newFake()))
			id := sent(t, db, email("cat@example.com"))[0]
			stop()
			if by == "somebody who has not seen it" {
				open := begun(t, db, pgtest.App, `select deed.erase_contact($1::text::uuid, 'asked for on paper, file 12', 'operator')`, of)
				db.Exec(t, pgtest.App, `select deed.suppress('email', '{cat@example.com}', 'cat has had enough')`)
				ends(t, open)
			} else {
				erase(t, db, of, contact.EraseOptions{})
				record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: id})
			}
			erased(t, db, 100)
			if found := traces(t, db, "cat@example.com", "had enough"); len(found) > 0 {
				t.Errorf("there are traces in %q", found)
			}
			if e := entry(t, db, reserve(t, db, email("cat@example.com", "afterwards"))[0].ID); e.Status != delivery.Skipped {
				t.Errorf("what is reserved afterwards is %s", e.Status)
			}
		})
	}
}
