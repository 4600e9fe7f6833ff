package deed_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// openTx opens a transaction of a role that a test leaves open, and runs qs in it.
func openTx(t testing.TB, db *pgtest.DB, role pgtest.Role, qs ...string) pgx.Tx {
	t.Helper()
	tx, err := db.Conn(t, role).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range qs {
		if _, err := tx.Exec(context.Background(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	return tx
}

// Nothing that somebody's transaction has asked for, and holds open, delays
// anybody else: streams and queues go on, others subscribe and change topics,
// housekeeping is done, and publishers publish.
func TestContract_O18_AnOpenChangeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	lines, effects := &recorder{}, &recorder{}
	opts := stream(lines)
	opts.Subscriptions = append(opts.Subscriptions, deed.Subscription{Topic: "effects", Name: "q", Sink: effects})
	c, _ := runStream(t, db, opts)
	publish(t, db, keyed("a", 0), message("effects", 0))
	drained(t, c)

	open := openTx(t, db, pgtest.Admin, `select deed.subscribe('orders', 'audit', 'now')`, `select deed.subscribe('later', 's')`,
		`select deed.set_topic('effects', p_lanes => 2)`)
	prepared := openTx(t, db, pgtest.Admin, `select deed.declare_topic('calls', 'stream')`, `select deed.subscribe('calls', 's', 'now')`)
	if _, err := prepared.Exec(ctx, `prepare transaction '`+db.Name()+`'`); err != nil {
		t.Fatal(err)
	}
	_ = prepared.Rollback(ctx) // it is no longer this session's

	for n := 1; n <= 5; n++ {
		publish(t, db, keyed("a", n), message("effects", n), message("later", n), message("calls", n))
		eventually(t, "the stream and the queue to go on", func() bool {
			a, _ := lines.counts()
			b, _ := effects.counts()
			return a == n+1 && b == n+1
		})
	}
	worker := db.Pool(pgtest.Worker)
	pgtest.One[int](t, worker, `select deed.keep_partitions()`)
	var others recorder
	second := stream(&others, func(o *deed.Options) { o.Subscriptions[0].Topic, o.Topics[0].Name = "others", "others" })
	o, _ := runStream(t, db, second)
	publish(t, db, message("others", 1))
	eventually(t, "a stream that was made beside it", func() bool { n, _ := others.counts(); return n == 1 })
	drained(t, o)
	db.Exec(t, pgtest.Admin, `select deed.set_topic('others', p_lanes => 3)`)

	if err := open.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Admin, `commit prepared '`+db.Name()+`'`)
	ids := pgtest.One[[]int](t, worker, `select array_agg(id order by id) from deed.subscriptions where id <> 0`)
	for _, id := range ids {
		scan(t, db, id)
	}
	for _, topic := range []string{"later", "calls"} {
		var late recorder
		client, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: topic, Name: "s", Sink: &late}}})
		eventually(t, topic+" to come when its subscription has committed", func() bool { n, _ := late.counts(); return n == 5 })
		drained(t, client)
	}
}

// Registrations that overlap lose nothing, whichever is committed first, and
// whoever published under which list: each subscription from now gets what had
// not committed when it was asked for. Publishers are begun at each stage and
// publish there, or at the end.
func TestContract_O18_OverlappingRegistrations(t *testing.T) {
	t.Parallel()
	for _, topics := range [][2]string{{"orders", "calls"}, {"orders", "orders"}} {
		for _, first := range []int{0, 1} {
			t.Run(fmt.Sprint(strings.Join(topics[:], " and "), ", ", first, " first"), func(t *testing.T) {
				db := pgtest.New(t)
				ctx := t.Context()
				worker := db.Pool(pgtest.Worker)
				changed := slices.Compact(slices.Clone(topics[:]))
				for _, topic := range changed {
					subscribe(t, db, topic, "first")
				}
				subscribe(t, db, "other", "first")
				one := func(topic string) string { return fmt.Sprintf(`select deed.publish('%s', '{}')`, topic) }
				var open, later, snapshots []pgx.Tx
				stage := func() {
					for _, topic := range changed {
						db.Exec(t, pgtest.App, one(topic))
						open = append(open, openTx(t, db, pgtest.App, one(topic)))
						later = append(later, openTx(t, db, pgtest.App, `select pg_current_xact_id()`))
					}
					snapshots = append(snapshots, openTx(t, db, pgtest.App, `set transaction isolation level repeatable read`, `select from pg_class limit 1`))
				}
				stage()
				a := openTx(t, db, pgtest.Worker, fmt.Sprintf(`select deed.subscribe('%s', 'a', 'now')`, topics[0]))
				stage()
				b := openTx(t, db, pgtest.Worker, fmt.Sprintf(`select deed.subscribe('%s', 'b', 'now')`, topics[1]))
				stage()
				both := []pgx.Tx{a, b}
				for _, i := range []int{first, 1 - first} {
					if err := both[i].Commit(ctx); err != nil {
						t.Fatal(err)
					}
					id := pgtest.One[int](t, worker, `select id from deed.subscriptions where name = $1`, []string{"a", "b"}[i])
					stage()
					for range 4 { // the list, the window, a page, another
						pgtest.One[int](t, worker, `select added from deed.backfill($1)`, id)
					}
					stage()
				}
				for i, tx := range later {
					if _, err := tx.Exec(ctx, one(changed[i%len(changed)])); err != nil {
						t.Fatal(err)
					}
				}
				for i, tx := range snapshots {
					topic := append([]string{"other"}, changed...)[i%(1+len(changed))]
					if _, err := tx.Exec(ctx, one(topic)); err != nil && (sqlState(err) != "40001" || topic == "other") {
						t.Errorf("a publisher to %s under the snapshot of stage %d: %v", topic, i, err)
					}
				}
				for _, tx := range slices.Concat(open, later, snapshots) {
					if err := tx.Commit(ctx); err != nil && !errors.Is(err, pgx.ErrTxCommitRollback) {
						t.Fatal(err)
					}
				}
				for _, id := range pgtest.One[[]int](t, db.Pool(pgtest.Worker), `select array_agg(id) from deed.subscriptions where name in ('a', 'b')`) {
					backfill(t, db, id)
				}
				rows, _ := db.Pool(pgtest.Owner).Query(ctx, `
					select s.name, l.id, p.id is null
					from deed.subscriptions s
					join deed.windows w on w.n = s.start_window
					join deed.log l on l.topic = s.topic
					left join deed.pending p on p.subscription = s.id and p.id = l.id
					where s.name in ('a', 'b') and (p.id is null) <> pg_visible_in_snapshot(l.xid, w.cur)`)
				var name string
				var id int64
				var missing bool
				if _, err := pgx.ForEachRow(rows, []any{&name, &id, &missing}, func() error {
					t.Errorf("%s and message %d: missing %v", name, id, missing)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A publisher under REPEATABLE READ fails if its topic's list has changed since
// its snapshot, and for no other reason: not beside a subscription that has not
// committed, of its own topic or another, and not after one that was undone.
func TestContract_O18_RepeatableReadFailsForItsOwnTopicAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	for _, level := range []string{"repeatable read", "serializable"} {
		for _, settled := range []bool{true, false} {
			topic := func(name string) string { return fmt.Sprintf("%s-%c-%v", name, level[0], settled) }
			subscribe(t, db, topic("known"), "s")
			subscribe(t, db, topic("other"), "s")
			if settled {
				pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.keep_partitions()`)
			}
			snapshot := func() pgx.Tx {
				return openTx(t, db, pgtest.App, `set transaction isolation level `+level, `select from pg_class limit 1`)
			}
			try := func(what string, tx pgx.Tx, want string, topics ...string) {
				t.Helper()
				var msgs []deed.Message
				for _, name := range topics {
					msgs = append(msgs, message(topic(name), 1))
				}
				_, err := deed.Publish(ctx, tx, msgs...)
				if got := sqlState(err); got != want {
					t.Errorf("%s, settled %v, %s: %s", level, settled, what, cmp.Or(got, fmt.Sprint(err)))
				}
				if err := tx.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
			}
			before := []pgx.Tx{snapshot(), snapshot(), snapshot(), snapshot()}
			open := openTx(t, db, pgtest.Worker, fmt.Sprintf(`select deed.subscribe('%s', 'b')`, topic("known")), fmt.Sprintf(`select deed.subscribe('%s', 's')`, topic("new")))
			try("beside an open one, another topic", before[0], "", "other", "undeclared")
			try("beside an open one, the same topics", before[1], "", "known", "new", "other")
			try("begun beside an open one", snapshot(), "", "known", "new", "other")
			if err := open.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			try("after one that was rolled back", before[2], "", "known", "new", "other")
			try("begun after it", snapshot(), "", "known", "new")
			try("and again", before[3], "", "new")

			before = []pgx.Tx{snapshot(), snapshot(), snapshot(), snapshot()}
			subscribe(t, db, topic("known"), "c")
			subscribe(t, db, topic("new"), "s")
			try("since a subscription, a known topic", before[0], "40001", "other", "known")
			try("since a subscription, a new topic", before[1], "40001", "new")
			try("since a subscription, others", before[2], "", "other", "undeclared")
			pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.keep_partitions()`)
			try("and since housekeeping", before[3], "40001", "known")
			try("begun after it", snapshot(), "", "known", "new", "other")
		}
	}
}

// A lock on the table, as a migration takes it, is waited for: to pass by it would
// be to publish by a list that has changed.
func TestContract_O18_RepeatableReadWaitsForTheTable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	tx := openTx(t, db, pgtest.App, `set transaction isolation level repeatable read`, `select from pg_class limit 1`)
	subscribe(t, db, "new", "s")
	migration := openTx(t, db, pgtest.Owner, `lock table deed.topics in share row exclusive mode`)
	published := make(chan error, 1)
	go func() {
		_, err := deed.Publish(ctx, tx, message("new", 1))
		published <- err
	}()
	eventually(t, "the publisher waits, or has published", func() bool {
		return len(published) > 0 || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_locks where relation = 'deed.topics'::regclass and not granted)`)
	})
	if err := migration.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if got := sqlState(<-published); got != "40001" {
		t.Errorf("published by a list that has changed: %q", got)
	}
}

// Locks that any login can take are none of deed's, and deed's own are taken by
// nobody else.
func TestContract_O18_NobodyElseTakesDeedsLocks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	rows, _ := db.Pool(pgtest.Owner).Query(ctx, `select proname from pg_proc where pronamespace = 'deed'::regnamespace and prosrc like '%advisory%'`)
	if names, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(names) > 0 {
		t.Errorf("functions that take advisory locks: %v, %v", names, err)
	}
	anyone := db.Conn(t, pgtest.App)
	for _, name := range []string{"open_window", "subscribe", "keep_partitions", "retention", "purge_history", "register_provider.p"} {
		if _, err := anyone.Exec(ctx, `select pg_advisory_lock(hashtextextended($1, 0))`, "deed."+name); err != nil {
			t.Fatal(err)
		}
	}
	locks := pgtest.One[[]string](t, db.Pool(pgtest.Owner), `
		select array_agg(relname::text) from pg_class where relnamespace = 'deed'::regnamespace and relname like '%\_lock'`)
	if len(locks) < 7 {
		t.Errorf("lock tables: %v", locks)
	}
	for _, table := range locks {
		for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker, pgtest.Admin} {
			tx := openTx(t, db, role)
			if _, err := tx.Exec(ctx, `lock table deed.`+table+` in access share mode nowait`); sqlState(err) != "42501" {
				t.Errorf("%v locks %s: %v", role, table, err)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink))
	publish(t, db, keyed("a", 1))
	drained(t, c)
	if n, _ := sink.counts(); n != 1 {
		t.Errorf("%d messages came, want 1", n)
	}
	if _, err := anyone.Exec(ctx, `select pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
}

// Where no window can be opened, streams wait and queues do not.
func TestContract_O18_QueuesGoOnWhereStreamsCannot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	lines, effects := &recorder{}, &recorder{}
	opts := stream(lines)
	opts.Subscriptions = append(opts.Subscriptions, deed.Subscription{Topic: "effects", Name: "q", Sink: effects})
	c, _ := runStream(t, db, opts)
	publish(t, db, keyed("a", 0), message("effects", 0))
	drained(t, c)
	held := openTx(t, db, pgtest.Worker, `select deed.open_window()`)
	publish(t, db, keyed("a", 1), message("effects", 1), message("effects", 2))
	eventually(t, "the queue to go on", func() bool { n, _ := effects.counts(); return n == 3 })
	if n, _ := lines.counts(); n != 1 {
		t.Errorf("the stream has read %d messages, the last beyond any window", n)
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream to go on", func() bool { n, _ := lines.counts(); return n == 2 })
	drained(t, c)
}
