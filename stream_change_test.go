package deed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// changing is a stream "orders" of one lane that nobody reads but the test.
type changing struct {
	t   testing.TB
	db  *pgtest.DB
	sub int
}

func newChanging(t testing.TB) *changing {
	c := &changing{t: t, db: pgtest.New(t)}
	c.exec(pgtest.Worker, `select deed.declare_topic('orders', 'stream', 1)`)
	c.sub = c.subscribe("s")
	return c
}

func (c *changing) subscribe(name string) int {
	id := pgtest.One[int](c.t, c.db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', $1)`, name)
	// There is nothing to bring, and other tests' transactions would be waited for.
	c.exec(pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp()`)
	return id
}

func (c *changing) exec(role pgtest.Role, sql string, args ...any) {
	c.t.Helper()
	c.db.Exec(c.t, role, sql, args...)
}

// worker is the uuid of worker i.
func worker(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

const takeLanes = `select deed.take_lanes($1::text::uuid, 'w', $2, p_protocol => 2)`

// begin opens a transaction of the owner.
func (c *changing) begin() pgx.Tx {
	c.t.Helper()
	tx, err := c.db.Pool(pgtest.Owner).Begin(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func do(t testing.TB, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// waits reports whether somebody waits for a lock in the test's database.
func (c *changing) waits() bool {
	return pgtest.One[bool](c.t, c.db.Pool(pgtest.Owner), `
		select exists (
		  select from pg_locks l join pg_stat_activity a on a.pid = l.pid
		  where not l.granted and a.datname = current_database()
		)`)
}

// pauseAll makes the lanes stop where they are.
func (c *changing) pauseAll() {
	c.exec(pgtest.Owner, `select deed.pause_lane(subscription, lane, fence) from deed.lanes`)
}

// A worker that takes a lane over while a change is asked for, and for which the
// lane had stopped, is told so: it must not read on past the place.
func TestStream_LaneTakenWhileAChangeIsAskedFor(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	tx := c.begin()
	do(t, tx, `insert into deed.relays values ($1, $2::text::uuid, 'w', clock_timestamp())`, c.sub, worker(2)) // holds worker 2 up
	said := make(chan int64, 1)
	go func() {
		var last *int64
		err := c.db.Pool(pgtest.Worker).QueryRow(context.Background(),
			`select last_window from deed.take_lanes($1::text::uuid, 'w', array[$2::int], p_protocol => 2)`, worker(2), c.sub).Scan(&last)
		if err != nil || last == nil {
			said <- -1
			return
		}
		said <- *last
	}()
	eventually(t, "worker 2 to wait", func() bool {
		return c.waits()
	})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', p_lanes => 2)`)
	c.pauseAll()
	c.exec(pgtest.Owner, `update deed.lanes set worker = null, lease_until = null`)
	c.exec(pgtest.Owner, `delete from deed.relays where worker = $1::text::uuid`, worker(1))
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if last := <-said; last != 0 {
		t.Errorf("the new owner was told to stop at %d, want 0 (at once)", last)
	}
	if n := pgtest.One[int](t, c.db.Pool(pgtest.Owner), `select count(paused_at) from deed.lanes`); n != 0 {
		t.Error("the new owner, which has not stopped, counts as stopped")
	}
}

// Two processes that make the subscriptions of one topic a queue's at once.
func TestStream_TwoEndAStreamAtOnce(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	other := c.subscribe("other")
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, other})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	c.pauseAll()
	tx := c.begin()
	do(t, tx, `select deed.make_lanes($1)`, c.sub) // finds where they stop
	do(t, tx, `select deed.make_lanes($1)`, other) // ends the stream
	do(t, tx, `select deed.make_lanes($1)`, c.sub)
	c.exec(pgtest.Owner, `select deed.make_lanes($1)`, other) // it does not wait
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, c.db.Pool(pgtest.Owner), `select count(*) from deed.lanes`); n != 0 {
		t.Errorf("the queue has %d lanes", n)
	}
}

// A version of the list that is being given out for a queue is not published
// under before the stream has ended.
func TestStream_EndsBesideHousekeeping(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	c.pauseAll()
	tx := c.begin()
	// As in the middle of deed.end_stream: before it comes to the topic.
	patch{"end_stream", `  update deed.topics t set mode = 'queue'`, `  perform pg_advisory_lock(4711); perform pg_advisory_unlock(4711); update deed.topics t set mode = 'queue'`}.apply(t, c.db)
	gate, err := c.db.Pool(pgtest.Owner).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	if _, err := gate.Exec(t.Context(), `select pg_advisory_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := tx.Exec(context.Background(), `select deed.make_lanes($1)`, c.sub)
		ended <- err
	}()
	eventually(t, "the stream to be ending", func() bool {
		return c.waits()
	})
	c.exec(pgtest.Owner, `select deed.keep_partitions()`)
	c.exec(pgtest.App, `select deed.publish('orders', '{}')`)
	if _, err := gate.Exec(t.Context(), `select pg_advisory_unlock(4711)`); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	backfill(t, c.db, c.sub)
	if n := pgtest.One[int](t, c.db.Pool(pgtest.Owner), `select count(*) from deed.pending`); n != 1 {
		t.Errorf("%d messages are pending, want the one that was published", n)
		c.exec(pgtest.Owner, `insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select $1, slot, id, tenant_id, created_at from deed.log on conflict do nothing`, c.sub)
	}
}

// Who subscribes while the topic is being made a queue does not hold that up.
func TestStream_SubscribedWhileItEnds(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	late := c.subscribe("late")
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, late})
	c.pauseAll()
	for range 3 {
		c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, late})
	}
	if mode := pgtest.One[string](t, c.db.Pool(pgtest.Worker), `select mode from deed.topics where not own`); mode != "queue" {
		t.Errorf("the topic is still a %s", mode)
	}
}

// A change of the number of lanes does not call off that to a queue.
func TestStream_LanesChangedWhileItEnds(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	c.exec(pgtest.Admin, `select deed.set_topic('orders', p_lanes => 3)`)
	if mode := pgtest.One[string](t, c.db.Pool(pgtest.Owner), `select mode from deed.relanings`); mode != "queue" {
		t.Errorf("the topic is to be a %s", mode)
	}
}

// What was published while the topic was a queue, and commits after it has been
// a stream and is a queue again, has its pending row: it comes once.
func TestStream_QueueMessageCommittedAfterTheStream(t *testing.T) {
	t.Parallel()
	c := &changing{t: t, db: pgtest.New(t)}
	c.sub = c.subscribe("s")
	tx, err := c.db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	do(t, tx, `select deed.publish('orders', '{}')`)
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'stream')`)
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := claim(t, c.db.Pool(pgtest.Worker), "orders", "w", 10)
	if len(got) != 1 {
		t.Fatalf("claimed %d messages", len(got))
	}
	finish(t, c.db.Pool(pgtest.Worker), c.sub, got[0].Claim, got[0].ID)
	backfill(t, c.db, c.sub)
	if again := claim(t, c.db.Pool(pgtest.Worker), "orders", "w", 10); len(again) != 0 {
		t.Errorf("the message came again")
		c.exec(pgtest.Owner, `delete from deed.pending`)
	}
}

// A fence and a row's number that a crash has taken back, and another owner has
// been given, do not let the former one record a page: its place is another.
func TestContract_O14_FenceGivenOutAgain(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	w := pgtest.One[int64](t, c.db.Pool(pgtest.Worker), `select deed.open_window()`)
	record := func(was string, n int) bool {
		return pgtest.One[bool](t, c.db.Pool(pgtest.Worker), `
			select p.n is not null
			from deed.lanes l
			cross join deed.windows w
			cross join lateral deed.finish_page(l.subscription, l.lane, l.fence, $2, $3, w.n, w.h, null, null, -2, 0, 0, null, null, 'w') p
			where w.n = $1`, w, n, was)
	}
	if record("0/0/-1/7", 1) {
		t.Error("a page was recorded after a place where the lane is not")
	}
	if !record("0/0/-2/0", 1) {
		t.Error("the next page was not recorded")
	}
	tx := c.begin()
	do(t, tx, `set local synchronous_commit = off`)
	c.exec(pgtest.Owner, `update deed.lanes set worker = null, lease_until = null`)
	do(t, tx, takeLanes, worker(1), []int{c.sub})
	if got := pgtest.One[string](t, tx, `show synchronous_commit`); got != "on" {
		t.Errorf("a lane is taken with synchronous_commit %s", got)
	}
}

// A record that a failover took back is noticed at the next one, and the lane
// goes on from what is there at once: with repeats, but without a gap or a wait.
func TestStream_FailoverTakesARecordBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) {
		o.Topics[0].Lanes, o.Subscriptions[0].Lease = 1, time.Hour // for whose end it would wait in vain
	}))
	publish(t, db, keyed("k", 0))
	drained(t, c)
	db.Exec(t, pgtest.Owner, `delete from deed.progress where messages > 0`)
	publish(t, db, keyed("k", 1))
	eventually(t, "the lane to go on", func() bool {
		n, _ := sink.counts()
		return n == 2 && pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(sum(messages), 0) from deed.progress`) == 2
	})
}

// Whatever is aside, and whatever somebody holds, the statement in which a stream
// becomes a queue is short: the leases of all streams are renewed in it.
func TestStream_ItsEndHoldsUpNoLease(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	pool := c.db.Pool(pgtest.Worker)
	c.exec(pgtest.App, `select deed.publish('orders', '{}', p_key => 'k' || g % 10) from generate_series(1, 6000) g`)
	c.exec(pgtest.Owner, `
		insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash, parked)
		select $1, l.slot, l.id, l.tenant_id, l.created_at, deed.key_hash(l.tenant_id, l.key), row_number() over (partition by l.key order by l.id) > 1
		from deed.log l`, c.sub)
	take := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := pool.Exec(ctx, takeLanes, worker(1), []int{c.sub}); err != nil {
			t.Fatalf("a process that renews its leases: %v", err)
		}
	}
	keyed := func() int {
		return pgtest.One[int](t, pool, `select count(*) from deed.pending where key_hash is not null`)
	}
	take()
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	c.pauseAll()
	tx := c.begin()
	do(t, tx, `select from deed.pending where not parked order by id limit 1 for update`)
	take()
	same(t, "keyed after a step", keyed(), 1000)
	same(t, "violations on the way", invariants(t, c.db), []string{})
	for range 3 {
		take()
	}
	same(t, "keyed while one is locked", keyed(), 1)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	take()
	same(t, "the topic", pgtest.One[string](t, pool, `select mode from deed.topics where not own`), "queue")
	same(t, "free", pgtest.One[int](t, pool, `select count(*) from deed.pending where not parked and key_hash is null`), 6000)
}

// Nor does a change of a subscription that somebody leaves open hold up those that
// look after the lanes: they are made when it has ended.
func TestStream_AnOpenSettingHoldsUpNoLease(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	open := openTx(t, c.db, pgtest.Admin, `select deed.set_subscription('orders', 's', 3)`)
	take := func() int {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.db.Pool(pgtest.Worker).Exec(ctx, takeLanes, worker(1), []int{c.sub}); err != nil {
			t.Fatalf("a process that looks after its lanes: %v", err)
		}
		return pgtest.One[int](t, c.db.Pool(pgtest.Worker), `select count(*) from deed.lanes`)
	}
	same(t, "lanes meanwhile", take(), 0)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "lanes afterwards", take(), 1)
}

// A stream of which nobody has made lanes becomes a queue though a subscription
// was locked when that was asked for.
func TestStream_EndsWithoutLanes(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	open := openTx(t, c.db, pgtest.Admin, `select deed.set_subscription('orders', 's', 3)`)
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	same(t, "the topic", pgtest.One[string](t, c.db.Pool(pgtest.Worker), `select mode from deed.topics where not own`), "queue")
}

// Nor does who subscribes in a transaction that is left open.
func TestStream_AnOpenSubscriptionHoldsUpNoEnd(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	c.pauseAll()
	open := openTx(t, c.db, pgtest.Worker, `select deed.subscribe('orders', 'late')`)
	for range 2 {
		c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	}
	same(t, "the topic", pgtest.One[string](t, c.db.Pool(pgtest.Worker), `select mode from deed.topics where not own`), "queue")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := pgtest.One[int](t, c.db.Pool(pgtest.Worker), `select id from deed.subscriptions where name = 'late'`)
	scan(t, c.db, late)
	same(t, "the queue's list", pgtest.One[[]int](t, c.db.Pool(pgtest.Worker), `select subscriptions from deed.topics where topic = 'orders'`), []int{c.sub, late})
}

// It becomes a queue, too, when the only subscription for which that was waited is
// removed, unless somebody is changing one that is to join the queue.
func TestStream_EndsWithItsLastSubscription(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	mode := func() string {
		return pgtest.One[string](t, c.db.Pool(pgtest.Worker), `select mode from deed.topics where not own`)
	}
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	late := c.subscribe("late")
	open := openTx(t, c.db, pgtest.Admin, `select deed.set_subscription('orders', 'late', 3)`)
	const remove = `select deed.remove_subscription('orders', 's', 'nobody reads it')`
	if _, err := c.db.Pool(pgtest.Admin).Exec(t.Context(), remove); sqlState(err) != "55P03" {
		t.Errorf("beside a change of the other it is removed: %v", err)
	}
	same(t, "meanwhile", mode(), "stream")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.exec(pgtest.Admin, remove)
	same(t, "afterwards", mode(), "queue")
	c.exec(pgtest.Owner, `update deed.backfills set finished_at = null`)
	scan(t, c.db, late)
	c.exec(pgtest.App, `select deed.publish('orders', '{}')`)
	same(t, "messages of the other", len(given(t, c.db, late)), 1)
}

// Who subscribes while a stream is being made a queue is brought what was published
// before the topic was declared, too: it joins the queue's list.
func TestContract_O18_SubscribedWhileAStreamEnds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := &changing{t: t, db: db}
	first := publish(t, db, message("orders", 1))
	c.exec(pgtest.Worker, `select deed.declare_topic('orders', 'stream', 1)`)
	c.sub = subscribe(t, db, "orders", "s")
	backfill(t, db, c.sub)
	same(t, "what the first is given", given(t, db, c.sub), []int64{first[0].Seq})
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	late := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'late', 'beginning')`)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, late})
	c.pauseAll()
	for range 2 {
		c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, late})
	}
	same(t, "the topic", pgtest.One[string](t, db.Pool(pgtest.Worker), `select mode from deed.topics where not own`), "queue")
	backfill(t, db, late)
	same(t, "what the late one is given", given(t, db, late), []int64{first[0].Seq})
}

// A lane at the mark at which its stream begins, and that is asked to stop at once, says that
// it is there: the lanes that follow do not read the log from its beginning.
func TestStream_AskedToStopAtAMark(t *testing.T) {
	t.Parallel()
	c := &changing{t: t, db: pgtest.New(t)}
	c.sub = c.subscribe("s")
	publish(t, c.db, keyed("before", 1))
	pgtest.One[int64](t, c.db.Pool(pgtest.Worker), `select deed.open_window()`)
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'stream', 1)`)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', p_lanes => 2)`)
	c.exec(pgtest.Owner, `update deed.lanes set worker = null, lease_until = null; delete from deed.relays`)
	runStream(t, c.db, stream(&recorder{}, func(o *deed.Options) { o.Topics = nil }))
	eventually(t, "the lanes to be made anew", func() bool {
		return pgtest.One[int](t, c.db.Pool(pgtest.Worker), `select count(*) from deed.lanes`) == 2
	})
	same(t, "places at the log's beginning", pgtest.One[int](t, c.db.Pool(pgtest.Worker), `select count(*) from deed.progress where from_window = 0 or to_window = 0`), 0)
}

// A change to a queue that waits for a subscription that nobody reads can be called off: the
// others go on at once.
func TestStream_ItsEndIsCalledOff(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	pool := c.db.Pool(pgtest.Worker)
	subscribe := func(name string) int {
		id := pgtest.One[int](t, pool, `select subscription from deed.subscribe('orders', $1, 'beginning')`, name)
		c.exec(pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp()`)
		return id
	}
	gone := subscribe("gone")
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, gone})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	c.exec(pgtest.Owner, `select deed.pause_lane(subscription, lane, fence) from deed.lanes where subscription = $1`, c.sub)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub})
	c.exec(pgtest.Admin, `select deed.set_topic('orders', 'stream')`)
	var last *int64
	if err := pool.QueryRow(t.Context(), `select last_window from deed.take_lanes($1::text::uuid, 'w', array[$2::int], p_protocol => 2)`, worker(1), c.sub).Scan(&last); err != nil || last != nil {
		t.Errorf("the lane is to stop at %v, %v", last, err)
	}
	late := subscribe("late")
	same(t, "who has joined", pgtest.One[bool](t, pool, `select list_version is not null from deed.subscriptions where id = $1`, late), true)
	c.exec(pgtest.Owner, `select deed.pause_lane(subscription, lane, fence) from deed.lanes where subscription = $1`, gone)
	c.exec(pgtest.Worker, takeLanes, worker(1), []int{c.sub, gone, late})
	same(t, "lanes", pgtest.One[string](t, pool, `select string_agg(subscription || ' ' || lane, ', ' order by subscription) from deed.lanes`), fmt.Sprintf("%d 2, %d 2, %d 1", c.sub, gone, late))
	same(t, "the topic", pgtest.One[string](t, pool, `select mode from deed.topics where not own`), "stream")
}
