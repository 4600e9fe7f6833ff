package deed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// begin starts a transaction of the application that already has its id.
func begin(t testing.TB, db *pgtest.DB) pgx.Tx {
	t.Helper()
	tx, err := db.Conn(t, pgtest.App).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.One[string](t, tx, `select pg_current_xact_id()::text`)
	return tx
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func given(t testing.TB, db *pgtest.DB, subscription int) []int64 {
	t.Helper()
	return pgtest.One[[]int64](t, db.Pool(pgtest.Owner), `select coalesce(array_agg(id order by id), '{}') from deed.pending where subscription = $1`, subscription)
}

// While an older transaction stays open, a look for late rows touches a few
// buffers; when one has ended, those of its rows.
func TestPlan_LateLooks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	first := subscribe(t, db, "orders", "first")
	db.Exec(t, pgtest.Owner, `alter table deed.log_p0 set (autovacuum_enabled = off)`)
	fill(t, db, first, 1, `null`, `null`)
	db.Exec(t, pgtest.Owner, `analyze deed.log`)
	for range 20 {
		fill(t, db, first, 10_000, `null`, `null`)
	}
	open, warm, late := begin(t, db), begin(t, db), begin(t, db)
	defer open.Rollback(ctx)
	for _, tx := range []pgx.Tx{warm, late} {
		if _, err := deed.Publish(ctx, tx, message("orders", 1), message("orders", 2)); err != nil {
			t.Fatal(err)
		}
	}
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'second', 'now')`)
	scan(t, db, id)
	conn := db.Conn(t, pgtest.Worker)
	look := `select * from deed.backfill(` + itoa(id) + `)`
	// The first ones read the catalogue, and one before which a transaction of another's has ended looks for what
	// that has published: each is kept, so that the next one need not.
	least := pgtest.Any
	for range 8 {
		least = min(least, pgtest.Measure(t, conn, pgtest.Any, look).Buffers)
	}
	if least > 30 {
		t.Errorf("a look that finds nothing touched %d buffers", least)
	}
	commit(t, warm) // the session's first such look plans and reads the catalogue
	pgtest.Measure(t, conn, pgtest.Any, look)
	commit(t, late)
	got := pgtest.Measure(t, conn, 500, look).Buffers
	t.Logf("%d buffers for a look that finds two messages", got)
	if got > 500 {
		t.Errorf("a look that finds two messages touched %d buffers", got)
	}
	if got := given(t, db, id); len(got) != 4 {
		t.Errorf("the subscription was given %v, want the four late messages", got)
	}
	db.Broken() // the filled rows are not what a publisher makes
}

// What a topic's first subscription is owed does not wait for what others have
// published to topics that nobody declared: a step passes over a hundred thousand of
// those, and reads their pages once.
func TestBackfill_PassesOverOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // the others' messages are not what a publisher makes
	db.Exec(t, pgtest.Owner, `alter table deed.log_p0 set (autovacuum_enabled = off)`)
	db.ExecSteps(t, pgtest.Owner, 100_000, `
		insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, payload)
		select nextval('deed.log_seq'), pg_current_xact_id(), n % 64, 0, '00000000-0000-0000-0000-000000000000', now(), 'elsewhere', '{}'
		from generate_series($1::int, $2::int) n`)
	publish(t, db, message("orders", 1))
	conn := db.Conn(t, pgtest.Worker)
	id := pgtest.One[int](t, conn, `select subscription from deed.subscribe('orders', 's')`)
	steps := 0
	for ; len(given(t, db, id)) == 0 && steps < 20; steps++ {
		if got := pgtest.Measure(t, conn, 6_000, `select * from deed.backfill(`+itoa(id)+`)`).Buffers; got > 6_000 {
			t.Errorf("a step touched %d buffers", got)
		} else {
			t.Logf("%d buffers", got)
		}
	}
	if steps > 3 {
		t.Errorf("its message did not come in %d steps", steps)
	}
}

// A removal that is left open holds up neither the step of what it removes, which
// would keep other subscriptions' from theirs, nor those.
func TestBackfill_WaitsForNoOpenRemoval(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Conn(t, pgtest.Worker)
	removed := pgtest.One[int](t, worker, `select subscription from deed.subscribe('jobs', 's')`)
	other := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's')`)
	tx, err := db.Pool(pgtest.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	do(t, tx, `select deed.remove_topic('jobs', 'x')`)
	if _, err := worker.Exec(t.Context(), `set lock_timeout = '2s'`); err != nil { // of the statements a busy machine makes long ones
		t.Fatal(err)
	}
	if pgtest.One[bool](t, worker, `select finished from deed.backfill($1)`, removed) {
		t.Error("what is being removed has been brought all")
	}

	pgtest.One[bool](t, worker, `select finished from deed.backfill($1)`, other)
	if !pgtest.One[bool](t, worker, `select window_n is not null from deed.backfills where subscription = $1`, other) {
		t.Error("the other one's backfill has not begun")
	}
}

// The same through a client, which does not take passing over for idleness.
func TestClient_FirstSubscriptionBehindOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	db.ExecSteps(t, pgtest.Owner, 100_000, `
		insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, payload)
		select nextval('deed.log_seq'), pg_current_xact_id(), n % 64, 0, '00000000-0000-0000-0000-000000000000', now(), 'elsewhere', '{}'
		from generate_series($1::int, $2::int) n`)
	publish(t, db, message("orders", 1))
	var r recorder
	run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &r}}})
	eventually(t, "the message", func() bool { n, _ := r.counts(); return n == 1 })
}

// A backfill that waits for an open transaction does not hide another one's of the same process that
// begins meanwhile, here that of a stream that becomes a queue.
func TestClient_BackfillsBesideOneThatWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('events', 'stream', 1)`)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('events', 's')`)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp()`) // there is nothing to bring
	open, late := begin(t, db), begin(t, db)
	defer open.Rollback(context.Background())
	if _, err := deed.Publish(t.Context(), late, message("events", 1)); err != nil {
		t.Fatal(err)
	}
	publish(t, db, message("jobs", 1))
	var events, jobs recorder
	run(t, db, deed.Options{
		Topics:        []deed.Topic{{Name: "events", Mode: deed.ModeStream, Lanes: 1}},
		Subscriptions: []deed.Subscription{{Topic: "events", Name: "s", Sink: &events}, {Topic: "jobs", Name: "s", Sink: &jobs}},
	})
	eventually(t, "what the backfill that waits has brought before", func() bool { n, _ := jobs.counts(); return n == 1 })
	eventually(t, "the change to be taken", func() bool { // it waits for a lock for a second only
		_, err := db.Pool(pgtest.Admin).Exec(t.Context(), `select deed.set_topic('events', 'queue')`)
		return err == nil
	})
	eventually(t, "the stream to be a queue", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `select mode from deed.topics where topic = 'events'`) == "queue"
	})
	commit(t, late)
	eventually(t, "what was published to the stream, and read by no lane", func() bool { n, _ := events.counts(); return n == 1 })
	if got := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.backfills b join deed.subscriptions s on s.id = b.subscription where s.topic = 'jobs' and b.finished_at is null`); got != 1 {
		t.Errorf("%d backfills wait for the open transaction, want the one of jobs", got)
	}
}

// A window that is opened by a transaction with an older id would not see what
// is published meanwhile: backfill refuses.
func TestBackfill_RefusesAfterAWrite(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "first")
	worker := db.Pool(pgtest.Worker)
	a, err := worker.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.One[string](t, a, `select pg_current_xact_id()::text`)
	p := begin(t, db)
	if _, err := deed.Publish(ctx, p, message("orders", 1)); err != nil {
		t.Fatal(err)
	}
	id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'second', 'now')`)
	_, err = a.Exec(ctx, `select deed.backfill($1)`, id)
	if got := sqlState(err); got != "DDARG" {
		t.Errorf("backfill after a write: SQLSTATE %q (%v), want DDARG", got, err)
	}
	if err := a.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	scan(t, db, id)
	commit(t, p)
	backfill(t, db, id)
	if got := given(t, db, id); len(got) != 1 {
		t.Errorf("the subscription was given %v, want the message that committed late", got)
	}
}

// The base of a window is never above what its h allows, whoever opens it.
func TestOpenWindow_BaseBelowAnOlderID(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "first")
	a, err := db.Pool(pgtest.Worker).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.One[string](t, a, `select pg_current_xact_id()::text`)
	published := publish(t, db, message("orders", 1))
	pgtest.One[int](t, a, `select subscription from deed.subscribe('orders', 'second', 'now')`)
	commit(t, a)
	base := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select base from deed.windows order by n desc limit 1`)
	if base >= published[0].Seq {
		t.Errorf("the window's base is %d, but %d was published by a later transaction", base, published[0].Seq)
	}
}

func unfinished(t testing.TB, db *pgtest.DB, subscription int) bool {
	t.Helper()
	return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select deed.unfinished(array[$1::int], '1 minute')`, subscription)
}

// What has committed late and is owed counts as unfinished before it is given.
func TestUnfinished_LateCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "first")
	late := begin(t, db)
	if _, err := deed.Publish(ctx, late, message("orders", 1)); err != nil {
		t.Fatal(err)
	}
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'second', 'now')`)
	if !unfinished(t, db, id) {
		t.Error("a subscription whose backfill has not begun says that nothing is unfinished")
	}
	scan(t, db, id)
	eventually(t, "nothing to be unfinished while the transaction runs", func() bool {
		pgtest.One[int](t, db.Pool(pgtest.Worker), `select added from deed.backfill($1)`, id)
		return !unfinished(t, db, id)
	})
	commit(t, late)
	if !unfinished(t, db, id) {
		t.Error("a committed message that is owed does not count as unfinished")
	}
}

// Retries are waited for, whenever they are due; what is only scheduled is not.
func TestUnfinished_Retries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1))
	worker := db.Pool(pgtest.Worker)
	got := claim(t, worker, "orders", "w", 1)
	pgtest.One[bool](t, worker, `select dead from deed.fail($1, $2, $3, '{x}', '{1 hour}', '{release}')`, id, got[0].Claim, ids(got))
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	if unfinished(t, db, id) {
		t.Error("a message that is scheduled for later counts as unfinished")
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set process_after = null`)
	got = claim(t, worker, "orders", "w", 1)
	pgtest.One[bool](t, worker, `select dead from deed.fail($1, $2, $3, '{x}', '{1 hour}')`, id, got[0].Claim, ids(got))
	if !unfinished(t, db, id) {
		t.Error("a message in retry does not count as unfinished")
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now()`)
	if unfinished(t, db, id) {
		t.Error("a dead message counts as unfinished")
	}
}

// In a cluster that took over the tables of another one, with transaction ids
// far above its own, new subscriptions get what they ask for.
func TestBackfill_AnotherClustersTransactionIDs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := subscribe(t, db, "orders", "first")
	backfill(t, db, first)
	var old []int64
	for n := range 30 {
		old = append(old, publish(t, db, message("orders", n))[0].Seq)
	}
	db.Exec(t, pgtest.Owner, `
		update deed.log set xid = ((xid::text)::bigint + 1000000000000)::text::xid8;
		update deed.windows set system_identifier = system_identifier - 1,
		  h = ((h::text)::bigint + 1000000000000)::text::xid8, cur = '1000000000000:1000000000000:'`)
	worker := db.Pool(pgtest.Worker)
	all := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'all', 'beginning')`)
	now := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'now', 'now')`)
	fresh := publish(t, db, message("orders", 31))[0].Seq
	backfill(t, db, all)
	backfill(t, db, now)
	if got, want := given(t, db, all), append(slices.Clone(old), fresh); !slices.Equal(got, want) {
		t.Errorf("the subscription from the beginning was given %v, want %v", got, want)
	}
	if got := given(t, db, now); !slices.Equal(got, []int64{fresh}) {
		t.Errorf("the subscription from now was given %v, want %d", got, fresh)
	}
}

// A backfill that had begun in the other cluster ends in this one.
func TestBackfill_BegunInAnotherCluster(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "first")
	late := begin(t, db)
	if _, err := deed.Publish(ctx, late, message("orders", 1)); err != nil {
		t.Fatal(err)
	}
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'second', 'now')`)
	scan(t, db, id)
	commit(t, late)
	db.Exec(t, pgtest.Owner, `
		update deed.log set xid = ((xid::text)::bigint + 1000000000000)::text::xid8;
		update deed.windows set system_identifier = system_identifier - 1, h = ((h::text)::bigint + 1000000000000)::text::xid8;
		update deed.backfills b set seen = format('%s:%s:%s', x, x + 1, x)::pg_snapshot
		from (select max((xid::text)::bigint) as x from deed.log) l where b.seen is not null;
		update deed.windows set cur = (select b.seen from deed.backfills b where b.subscription = 2)`)
	backfill(t, db, id)
	if got := given(t, db, id); len(got) != 1 {
		t.Errorf("the subscription was given %v, want the message that committed late", got)
	}
}

// A backfill that was dumped between two pages of late rows, of which those of
// another transaction had smaller numbers, gives all of them.
func TestBackfill_DumpedBetweenPages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "first")
	slow, quick := begin(t, db), begin(t, db)
	if _, err := deed.Publish(ctx, slow, message("orders", 1), message("orders", 2)); err != nil {
		t.Fatal(err)
	}
	var many []deed.Message
	for n := range 60 {
		many = append(many, message("orders", 100+n))
	}
	if _, err := deed.Publish(ctx, quick, many...); err != nil {
		t.Fatal(err)
	}
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'second', 'now')`)
	scan(t, db, id)
	commit(t, quick)
	if added := pgtest.One[int](t, db.Pool(pgtest.Worker), `select added from deed.backfill($1, 5)`, id); added != 50 {
		t.Fatalf("the first page of late rows has %d, want 50", added)
	}
	commit(t, slow)
	db.Exec(t, pgtest.Owner, `update deed.windows set system_identifier = system_identifier - 1`)
	backfill(t, db, id)
	if got := given(t, db, id); len(got) != 62 {
		t.Errorf("the subscription was given %d messages, want 62", len(got))
	}
}

// What subscription 0 holds moves as it stands; what is being delivered there
// is waited for.
func TestBackfill_MovesWhatStands(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	for n := range 4 {
		publish(t, db, message("orders", n))
	}
	worker := db.Pool(pgtest.Worker)
	rows, err := worker.Query(ctx, `select id, claim, attempts, lost_claims, convert_from(payload, 'UTF8') from deed.claim(null, 'w', 3, p_lease => '1 hour')`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Exec(ctx, `select deed.fail(0, $1, $2, '{bad,slow}', '{0,1 day}', '{discard,retry}')`, list[0].Claim, ids(list[:2])); err != nil {
		t.Fatal(err)
	}
	id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's')`)
	for range 10 {
		pgtest.One[int](t, worker, `select added from deed.backfill($1)`, id)
	}
	if got := given(t, db, id); len(got) != 0 {
		t.Errorf("%v were given while one of them is being delivered", got)
	}
	if !unfinished(t, db, id) {
		t.Error("what waits for a lease does not count as unfinished")
	}
	if n := finish(t, worker, 0, list[0].Claim, list[2].ID); n != 1 {
		t.Errorf("finished %d, want 1", n)
	}
	backfill(t, db, id)
	if got := given(t, db, id); len(got) != 4 {
		t.Errorf("the subscription was given %v, want all 4", got)
	}
	if got := given(t, db, 0); len(got) != 0 {
		t.Errorf("subscription 0 still holds %v", got)
	}
	for _, test := range []struct{ q, what string }{
		{`select dead_at is not null and last_error = 'bad' and attempts = 1 from deed.pending where id = $1`, "the dead message came to life"},
		{`select dead_at is null and last_error = 'slow' and attempts = 1 and ord > now() + interval '1 hour' from deed.pending where id = $1`, "the retry lost its attempts"},
	} {
		if !pgtest.One[bool](t, db.Pool(pgtest.Owner), test.q, list[0].ID) {
			t.Error(test.what)
		}
		list = list[1:]
	}
}

// What was published while nobody had declared the topic comes by number, whole and
// once: however much of others' lies between, from a partition's end, from where
// retention has moved it, where a step of an older version went on by slot, and where
// all of it goes by slot.
func TestBackfill_ByNumber(t *testing.T) {
	t.Parallel()
	const bySlot = -2
	for _, test := range []struct{ page, slot, every int }{
		{1, -1, 1}, {7, -1, 1}, {7, -1, 10}, {1000, -1, 3}, {7, 20, 2}, {7, 62, 1}, {7, bySlot, 2}, {1000, bySlot, 1},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var owed []int64
			some := func() {
				for n := range 60 {
					topic := "others"
					if n%test.every == 0 {
						topic = "orders"
					}
					p := publish(t, db, deed.Message{Topic: topic, Key: itoa(n), Payload: []byte("{}")})
					if topic == "orders" {
						owed = append(owed, p[0].Seq)
					}
				}
				db.Exec(t, pgtest.Owner, `select nextval('deed.log_seq') from generate_series(1, 100)`) // others were rolled back
			}
			some()
			nextDay(t, db)
			some()
			nextDay(t, db)
			older(t, db)
			retain(t, db, pgtest.Worker)
			some()
			kept := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`)
			same(t, "moved out of the log", kept, 120)

			worker := db.Pool(pgtest.Worker)
			id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's')`)
			eventually(t, "the backfill to begin", func() bool {
				pgtest.One[int](t, worker, `select added from deed.backfill($1, $2)`, id, test.page)
				return pgtest.One[bool](t, worker, `select window_n is not null from deed.backfills where subscription = $1`, id)
			})
			if test.slot == bySlot { // as where much has no summary
				db.Exec(t, pgtest.Owner, `update deed.backfills set reached = null`)
			}
			if test.slot >= 0 {
				db.Broken() // what an older version has given is not there
				from := owed[len(owed)/2]
				db.Exec(t, pgtest.Owner, `update deed.backfills set slot = $1, id = $2`, test.slot, from)
				owed = pgtest.One[[]int64](t, db.Pool(pgtest.Owner), `
					select array_agg(q.id order by q.id)
					from (select slot, id from deed.log where topic = 'orders' union all select slot, id from deed.kept where topic = 'orders') q
					where (q.slot, q.id) > ($1, $2)`, test.slot, from)
			}
			for scanned := false; !scanned; {
				pgtest.One[int](t, worker, `select added from deed.backfill($1, $2)`, id, test.page)
				scanned = pgtest.One[bool](t, worker, `select scanned from deed.backfills where subscription = $1`, id)
			}
			if got := given(t, db, id); !slices.Equal(got, owed) {
				t.Errorf("it was given %d messages, want %d\n got %v\nwant %v", len(got), len(owed), got, owed)
			}
		})
	}
}
