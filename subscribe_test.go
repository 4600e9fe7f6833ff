package deed_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A subscription registered under 16 publishers, some of whose transactions
// are long, rolled back or prepared, gets exactly what it asked for.
func TestContract_O18_RegisteredUnderPublishers(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"beginning", "now"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			db := pgtest.New(t)
			subscribe(t, db, "orders", "first")
			var stop atomic.Bool
			var committed atomic.Int64
			var publishers sync.WaitGroup
			for p := range 16 {
				conn := db.Conn(t, pgtest.App)
				publishers.Go(func() {
					for n := 0; !stop.Load(); n++ {
						if err := publishSomehow(ctx, conn, p, n); err != nil {
							t.Error(err)
							return
						}
						committed.Add(1)
					}
				})
			}
			worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
			eventually(t, "some messages", func() bool { return committed.Load() > 100 })
			before := pgtest.One[[]int64](t, owner, `select array_agg(id) from deed.log`)
			id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'second', $1)`, from)
			after := pgtest.One[[]int64](t, owner, `select array_agg(id) from deed.log`)
			mark := committed.Load()
			for range 20 {
				pgtest.One[int](t, worker, `select added from deed.backfill($1, 50)`, id)
			}
			eventually(t, "more messages", func() bool { return committed.Load() > mark+100 })
			stop.Store(true)
			publishers.Wait()
			backfill(t, db, id)
			missing := pgtest.One[int](t, owner, `
				select count(*) from deed.log l
				where not exists (select from deed.pending p where p.subscription = $1 and p.id = l.id)
				  and ($2 = 'beginning' or l.id <> all($3::bigint[]))`, id, from, after)
			if missing != 0 {
				t.Errorf("the subscription missed %d messages", missing)
			}
			if from == "now" {
				old := pgtest.One[int](t, owner, `select count(*) from deed.pending where subscription = $1 and id = any($2)`, id, before)
				if old != 0 {
					t.Errorf("a subscription from now was given %d messages that had committed before", old)
				}
			}
		})
	}
}

// publishSomehow ends with one committed transaction, of one kind or another.
func publishSomehow(ctx context.Context, conn *pgx.Conn, p, n int) error {
	do := func(qs ...string) error {
		for _, q := range qs {
			if _, err := conn.Exec(ctx, q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	}
	const one = `select deed.publish('orders', '{}')`
	switch n % 7 {
	case 0:
		if err := do("begin", one, "rollback"); err != nil {
			return err
		}
	case 1:
		gid := fmt.Sprintf("g%d_%d_%d", p, n, conn.PgConn().PID())
		return do("begin", one, "prepare transaction '"+gid+"'", one, "commit prepared '"+gid+"'")
	case 2:
		return do("begin", "select pg_current_xact_id()", "select pg_sleep(0.01)", one, "select pg_sleep(0.02)", "commit")
	case 3:
		return do("begin", "savepoint s", one, "rollback to savepoint s", one, "commit")
	case 4:
		err := do("begin isolation level repeatable read", "select 1 from pg_class limit 1", "select pg_sleep(0.005)", one, "commit")
		if sqlState(err) == "40001" {
			return do("rollback")
		}
		return err
	}
	return do(one)
}

// The case that no time-out and no snapshot alone would see: transactions that
// are running when the subscription is made, and commit long after.
func TestContract_O18_LateCommits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "first")
	publish(t, db, message("orders", 0))

	// One has published; one has only its transaction id; one has neither.
	published, err := db.Conn(t, pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(ctx, published, message("orders", 1)); err != nil {
		t.Fatal(err)
	}
	withID, err := db.Conn(t, pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.One[string](t, withID, `select pg_current_xact_id()::text`)
	begun, err := db.Conn(t, pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}

	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'second', 'now')`)
	for range 10 {
		if pgtest.One[bool](t, worker, `select finished from deed.backfill($1)`, id) {
			t.Fatal("the backfill says that it has finished while an older transaction runs")
		}
	}
	for n, tx := range []pgx.Tx{withID, begun} {
		if _, err := deed.Publish(ctx, tx, message("orders", 2+n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tx := range []pgx.Tx{begun, published, withID} {
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		pgtest.One[int](t, worker, `select added from deed.backfill($1)`, id)
	}
	backfill(t, db, id)
	if got := pgtest.One[int](t, owner, `select count(*) from deed.pending where subscription = $1`, id); got != 3 {
		t.Errorf("the subscription has %d messages, want the 3 that committed after it was made", got)
	}
}

// What was published before anyone declared the topic goes to the first
// subscription, and leaves the default one.
func TestContract_O18_FirstSubscriptionTakesOverWhatWaited(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for n := range 2500 {
		publish(t, db, message("orders", n), message("other", n))
		if n > 20 {
			break
		}
	}
	late, err := db.Conn(t, pgtest.App).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(context.Background(), late, message("orders", -1)); err != nil {
		t.Fatal(err)
	}
	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's')`)
	for range 20 {
		pgtest.One[int](t, worker, `select added from deed.backfill($1, 7)`, id)
	}
	if err := late.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	backfill(t, db, id)
	published := pgtest.One[int](t, owner, `select count(*) from deed.log where topic = 'orders'`)
	if got := pgtest.One[int](t, owner, `select count(*) from deed.pending where subscription = $1`, id); got != published {
		t.Errorf("the subscription has %d of the topic's %d messages", got, published)
	}
	if got := pgtest.One[int](t, owner, `select count(*) from deed.pending p join deed.log l using (slot, id) where p.subscription = 0 and l.topic = 'orders'`); got != 0 {
		t.Errorf("%d of them are still with the default subscription", got)
	}
	if got := pgtest.One[int](t, owner, `select count(*) from deed.pending p join deed.log l using (slot, id) where p.subscription = 0 and l.topic = 'other'`); got != published-1 {
		t.Errorf("another topic's messages left the default subscription: %d of %d", got, published-1)
	}
}

// Registration is idempotent and safe in any number of processes at once.
func TestSubscribe_Races(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var wg sync.WaitGroup
	var made atomic.Int32
	for range 12 {
		wg.Go(func() {
			for _, topic := range []string{"a", "b", "c"} {
				eventually(t, "the subscription to be there", func() bool {
					var mine bool
					err := db.Pool(pgtest.Worker).QueryRow(t.Context(), `select made from deed.subscribe($1, 's')`, topic).Scan(&mine)
					if sqlState(err) == "55P03" {
						return false // whoever makes it takes over a second
					}
					if err != nil {
						t.Error(err)
					}
					if mine {
						made.Add(1)
					}
					return true
				})
			}
		})
	}
	wg.Wait()
	if made.Load() != 3 {
		t.Errorf("%d calls made a subscription, want 3", made.Load())
	}
	for q, want := range map[string]string{
		`select deed.subscribe('', 's')`:                                            "DDARG",
		`select deed.subscribe('a b', 's')`:                                         "DDARG",
		`select deed.subscribe('a', 'b c')`:                                         "DDARG",
		`select deed.subscribe('a', 'd', 'yesterday')`:                              "DDARG",
		`select deed.subscribe('a', 'd', p_lease => '1 ms')`:                        "23514",
		`select deed.subscribe('a', 's', 'beginning', 7, '1 minute')`:               "", // it exists: nothing changes
		`select deed.subscribe(repeat('x', 200), repeat('y', 100), 'now', 0, '1h')`: "",
	} {
		_, err := db.Pool(pgtest.Worker).Exec(context.Background(), q)
		if got := sqlState(err); got != want {
			t.Errorf("%s: SQLSTATE %q (%v), want %q", q, got, err, want)
		}
	}
}

// Subscriptions that are declared together are all the topic's first: each
// gets what was published before anyone declared it.
func TestContract_O18_DeclaredTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for n := range 30 {
		publish(t, db, message("orders", n))
	}
	var a, b recorder
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "orders", Name: "a", Sink: &a},
		{Topic: "orders", Name: "b", Sink: &b},
	}})
	drained(t, c)
	for name, r := range map[string]*recorder{"a": &a, "b": &b} {
		if n, repeats := r.counts(); n != 30 || repeats != 0 {
			t.Errorf("%s was given %d of 30 messages, %d repeats", name, n, repeats)
		}
	}
	var later recorder
	c, _ = run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "later", Sink: &later}}})
	drained(t, c)
	if n, _ := later.counts(); n != 0 {
		t.Errorf("a later subscription was given %d old messages without asking", n)
	}
}
