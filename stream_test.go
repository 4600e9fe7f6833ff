package deed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// stream is the options of a client that reads the topic "orders", a stream,
// into sink.
func stream(sink deed.Sink, more ...func(*deed.Options)) deed.Options {
	opts := deed.Options{
		Topics:        []deed.Topic{{Name: "orders", Mode: deed.ModeStream}},
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: sink}},
	}
	for _, m := range more {
		m(&opts)
	}
	return opts
}

// runStream starts a client and waits until its topics are declared.
func runStream(t testing.TB, db *pgtest.DB, opts deed.Options) (*deed.Client, func() error) {
	t.Helper()
	c, stop := run(t, db, opts)
	eventually(t, "the client to be ready", func() bool { return c.Ready(context.Background()) == nil })
	return c, stop
}

// keyed is message n of the topic "orders" and of a key.
func keyed(key string, n int) deed.Message {
	return deed.Message{Topic: "orders", Key: key, Value: map[string]int{"n": n}}
}

// inOrder checks that the first deliveries of each key's messages came in the
// order of their numbers, which is that of their transactions here.
func inOrder(t *testing.T, list []deed.Message) {
	t.Helper()
	last := map[string]int64{}
	seen := map[int64]bool{}
	for _, m := range list {
		if seen[m.Seq] || m.Key == "" {
			continue
		}
		seen[m.Seq] = true
		if m.Seq < last[m.Key] {
			t.Errorf("key %s: message %d came after %d", m.Key, m.Seq, last[m.Key])
		}
		last[m.Key] = m.Seq
	}
}

func TestContract_O13_EachKeyInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, stop := runStream(t, db, stream(sink))
	for i := range 300 {
		publish(t, db, keyed(fmt.Sprint(i%7), i))
	}
	var many []deed.Message
	for i := range 3000 {
		many = append(many, keyed(fmt.Sprint(i%50), i))
	}
	publish(t, db, many...)
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, repeats := sink.counts(); n != 3300 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 3300 and none", n, repeats)
	}
	inOrder(t, sink.list)
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`); n != 0 {
		t.Errorf("%d pending rows", n)
	}
}

// succeeded are the deliveries that were.
func (r *recorder) succeeded() []deed.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]deed.Message(nil), r.done...)
}

func TestContract_O13_FailureHoldsBackItsKeyOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var tries atomic.Int64
	sink := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && string(m.Payload) == `{"n":3}` && tries.Add(1) < 3 {
			return deed.AfterError(50*time.Millisecond, errors.New("not yet"))
		}
		return nil
	}}
	c, stop := runStream(t, db, stream(sink))
	for i := range 200 {
		publish(t, db, keyed("bad", i), keyed("good", i))
	}
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, repeats := sink.counts(); n != 400 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
	inOrder(t, sink.succeeded())
}

// A page that has put messages behind others of their key does not hold up
// what becomes of those until all of it is delivered: it ends early, and what it
// had not begun is read again, in order.
func TestContract_O13_LongPageLetsRetriesGoOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var first atomic.Int64 // the number of the key's first message, which is put aside
	aside := func() (is bool) {
		err := db.Pool(pgtest.Worker).QueryRow(context.Background(), `select exists (select from deed.pending where id = $1)`, first.Load()).Scan(&is)
		if err != nil {
			t.Error(err)
		}
		return is
	}
	var paging atomic.Bool          // the page is being delivered
	came := make(chan struct{}, 10) // the second message of the key
	sink := &recorder{}
	fn := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		n := string(m.Payload)
		switch {
		case m.Key == "slow" && n == `{"n":1}`:
			paging.Store(true)
		case m.Key == "slow" && n == `{"n":5}`: // the page lasts until the retry is recorded, however long that takes
			pgtest.Wait(pgtest.Patience, func() bool { return !aside() })
		case m.Key == "slow" && n == `{"n":39}`: // and what is left of it until the other has come, which it does if the page has ended
			select {
			case <-came:
			case <-time.After(30 * time.Second):
			}
		case m.Key == "bad" && n == `{"n":0}` && !paging.Load():
			return deed.AfterError(200*time.Millisecond, errors.New("not yet"))
		}
		if m.Key == "slow" {
			time.Sleep(100 * time.Millisecond)
		}
		err := errors.Join(sink.Deliver(ctx, []deed.Message{m})...)
		if m.Key == "bad" && n == `{"n":1}` {
			came <- struct{}{}
		}
		return err
	})
	c, stop := runStream(t, db, stream(fn, func(o *deed.Options) { o.Topics[0].Lanes, o.Subscriptions[0].MaxAttempts = 1, 1000 }))
	first.Store(publish(t, db, keyed("bad", 0))[0].Seq)
	eventually(t, "the message to be aside", aside)
	page := []deed.Message{keyed("bad", 1)}
	for i := range 40 {
		page = append(page, keyed("slow", i))
	}
	for i := range 10 {
		page = append(page, keyed(fmt.Sprint("quick", i), i))
	}
	publish(t, db, page...)
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, repeats := sink.counts(); n != 52 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
	list := sink.succeeded()
	inOrder(t, list)
	if list[len(list)-1].Key != "slow" {
		t.Error("the second message of the key came after the page that it was in had ended")
	}
}

func TestContract_O13_DeadMessageBlocksItsKeyUntilRedriven(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var well atomic.Bool
	sink := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && string(m.Payload) == `{"n":0}` && !well.Load() {
			return deed.AfterError(0, errors.New("cannot be"))
		}
		return nil
	}}
	c, stop := runStream(t, db, stream(sink, func(o *deed.Options) { o.Subscriptions[0].MaxAttempts = 2 }))
	for i := range 50 {
		publish(t, db, keyed("bad", i), keyed("good", i))
	}
	eventually(t, "the message to be dead and its followers parked", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where dead_at is not null or parked`) == 50
	})
	drained(t, c)
	blocked, err := operator(t, db).BlockedKeys(context.Background(), admin.BlockedFilter{Topic: "orders", Limit: 10})
	if err != nil || len(blocked.Items) != 1 || blocked.Items[0].Key != "bad" || !blocked.Items[0].Dead || blocked.Items[0].Behind != 49 || blocked.Items[0].LastError != "cannot be" {
		t.Fatalf("blocked keys: %+v, %v", blocked, err)
	}
	if n, _ := sink.counts(); n != 50 {
		t.Errorf("%d messages of other keys came, want 50", n)
	}
	well.Store(true)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := operator.Redrive(t.Context(), admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	publish(t, db, keyed("bad", 50))
	eventually(t, "all to have come", func() bool { n, _ := sink.counts(); return n == 101 })
	drained(t, c)
	// The key goes its own way again.
	publish(t, db, keyed("bad", 51))
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	inOrder(t, sink.succeeded())
	if n, repeats := sink.counts(); n != 102 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 102 and none", n, repeats)
	}
}

// An idle transaction makes its own rows late and nothing else.
func TestStream_LateCommit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink))
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(t.Context(), tx, keyed("late", 0)); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		publish(t, db, keyed("early", i))
	}
	eventually(t, "the others to come", func() bool { n, _ := sink.counts(); return n == 50 })
	if _, err := deed.Publish(t.Context(), tx, keyed("late", 1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the late ones to come", func() bool { n, _ := sink.counts(); return n == 52 })
	drained(t, c)
	inOrder(t, sink.list)
}

func TestStream_ScheduledMessagesWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var came atomic.Int64 // when the one that waits did
	sink := &recorder{fail: func(m deed.Message) error {
		if string(m.Payload) == `{"n":0}` {
			came.Store(time.Now().UnixMicro())
		}
		return nil
	}}
	c, _ := runStream(t, db, stream(sink))
	later := keyed("k", 0)
	later.ProcessAfter = time.Now().Add(15 * time.Second) // longer than it takes a busy machine to read it
	publish(t, db, later, keyed("k", 1))
	drained(t, c)
	if n, _ := sink.counts(); n != 2 {
		t.Fatalf("%d messages came, want 2", n)
	}
	if early := later.ProcessAfter.UnixMicro() - came.Load(); early > 0 {
		t.Errorf("it came %d µs before its time", early)
	}
	if string(sink.succeeded()[0].Payload) != `{"n":1}` {
		t.Error("what was due came after the one that waited for its time")
	}
	same(t, "put aside", pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(sum(aside), 0) from deed.progress`), 1)
}

// An outage of the sink counts no attempt, puts nothing aside and keeps order.
func TestContract_O9_StreamOutageBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var down atomic.Bool
	down.Store(true)
	var tries atomic.Int64
	sink := &recorder{fail: func(deed.Message) error {
		if down.Load() {
			tries.Add(1)
			return deed.Unavailable(errors.New("away"), time.Millisecond)
		}
		return nil
	}}
	c, _ := runStream(t, db, stream(sink))
	for i := range 100 {
		publish(t, db, keyed(fmt.Sprint(i%3), i))
	}
	eventually(t, "the sink to be tried", func() bool { return tries.Load() > 2 })
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`); n != 0 {
		t.Errorf("%d messages were put aside", n)
	}
	down.Store(false)
	drained(t, c)
	if n, repeats := sink.counts(); n != 100 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
	inOrder(t, sink.succeeded())
}

func TestStream_ChangeOfMode(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics = nil }))
	stopPublishing := publishers(t, db, 2, 20)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, mode := range []deed.Mode{deed.ModeStream, deed.ModeQueue} {
			eventually(t, "the change to be taken", func() bool {
				err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Mode: mode})
				if err != nil && deed.CodeOf(err) != deed.Conflict {
					t.Fatal(err)
				}
				return err == nil
			})
			before := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select coalesce(max(id), 0) from deed.log`)
			eventually(t, "the topic to be a "+string(mode), func() bool {
				if pgtest.One[string](t, db.Pool(pgtest.Worker), `select mode from deed.topics where not own`) != string(mode) {
					return false
				}
				sink.mu.Lock()
				defer sink.mu.Unlock()
				newest := int64(0)
				for seq := range sink.seen {
					newest = max(newest, seq)
				}
				return newest > before+20
			})
		}
	}
	n := stopPublishing()
	eventually(t, "all to have come", func() bool { got, _ := sink.counts(); return got >= n })
	drained(t, c)
	if got, repeats := sink.counts(); got != n || repeats != 0 {
		t.Errorf("%d messages came, %d again; want %d and none", got, repeats, n)
	}
}

// From the third owner in a row that lost the lane at one place on, messages
// are put aside before they are handed to anyone, and tried alone.
func TestContract_O17_StreamThatKillsItsOwners(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `
		with made as materialized (select made from deed.declare_topic('orders', 'stream', 1))
		select s.subscription from made, deed.subscribe('orders', case when made.made then 's' end) s`)
	for i := range 20 {
		publish(t, db, keyed(fmt.Sprint(i%3), i))
	}
	for i := range 4 { // owners that die without a record
		db.Exec(t, pgtest.Worker, `select deed.take_lanes($1::text::uuid, 'gone', array[$2::int], p_protocol => 2)`, fmt.Sprintf("00000000-0000-0000-0000-%012d", i+1), id)
		db.Exec(t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() - interval '1 second'`)
		db.Exec(t, pgtest.Owner, `update deed.relays set seen_until = clock_timestamp()`)
	}
	sink := &recorder{}
	c, stop := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 }))
	eventually(t, "all to come", func() bool { n, _ := sink.counts(); return n == 20 })
	drained(t, c)
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(sum(aside), 0) from deed.progress`); n != 20 {
		t.Errorf("%d of 20 messages were put aside first", n)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select max(cardinality(ids)) from deed.receipts`); n != 1 {
		t.Errorf("up to %d messages were tried together", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	inOrder(t, sink.list)
}

// What a stream writes does not depend on the machine: a row a page, and
// nothing a message.
func TestStream_WritesARowAPage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('orders', 'stream')`)
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 's')`)
	const count = 20_000
	for from := 0; from < count; from += 1000 {
		msgs := make([]deed.Message, 1000)
		for i := range msgs {
			msgs[i] = keyed(fmt.Sprint(from+i), from+i)
		}
		publish(t, db, msgs...)
	}
	sink := &recorder{}
	c, _ := run(t, db, stream(sink))
	eventually(t, "all to come", func() bool { n, _ := sink.counts(); return n == count })
	drained(t, c)
	pages := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.progress where messages > 0`)
	windows := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.windows`)
	others := pgtest.One[int](t, db.Pool(pgtest.Worker), `select (select count(*) from deed.pending) + (select count(*) from deed.receipts)`)
	if pages > count/1000+4*4 || windows > 20 || others > 0 {
		t.Errorf("%d messages took %d rows of progress, %d windows, %d others", count, pages, windows, others)
	}
}

// A worker that has nothing to claim hears of the change all the same.
func TestStream_DrainedQueueBecomesAStream(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics = nil }))
	publish(t, db, keyed("k", 0))
	drained(t, c)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Mode: deed.ModeStream}); err != nil {
		t.Fatal(err)
	}
	publish(t, db, keyed("k", 1))
	eventually(t, "the message of the stream to come", func() bool { n, _ := sink.counts(); return n == 2 })
	drained(t, c)
}

// What a crash or a failover takes back of windows and positions, a running
// worker notices, also one that stands idle at a window that is gone.
func TestStream_FailoverTakesWindowsBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 2 }))
	for i := range 20 {
		publish(t, db, keyed(fmt.Sprint(i), i))
		eventually(t, "it to come", func() bool { n, _ := sink.counts(); return n == i+1 })
	}
	drained(t, c)
	// The standby has no windows but the first few, and the lanes stand there. Takes were
	// taken back as well. A lane that notices is not to record anything in between.
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Owner), func(tx pgx.Tx) error {
		for _, sql := range []string{
			`lock table deed.progress in share row exclusive mode`,
			`with kept as (select n from deed.windows where n > 0 order by n limit 3),
			gone as (delete from deed.progress where from_window > (select max(n) from kept) or to_window > (select max(n) from kept))
			delete from deed.windows where n > (select max(n) from kept)`,
			`select setval(pg_get_serial_sequence('deed.windows', 'n'), (select max(n) from deed.windows))`,
			`insert into deed.progress (subscription, lane, n, fence, from_window, slot, total)
			select l.subscription, l.lane, g.n + 1, l.fence, g.from_window, -2, g.total
			from deed.lanes l
			cross join lateral (select max(g.n) as n, max(g.from_window) as from_window, max(g.total) as total from deed.progress g where g.subscription = l.subscription and g.lane = l.lane) g`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		publish(t, db, keyed(fmt.Sprint(i), 20+i))
	}
	eventually(t, "what was published after it to come", func() bool { n, _ := sink.counts(); return n == 22 })
	drained(t, c)
}

// A message that waits for its time does not come early because its page is
// suspected of killing its workers; and a row that is there already, as after
// a restore, does not stop the lane.
func TestStream_CarefulPageHeedsTheTime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `
		with made as materialized (select made from deed.declare_topic('orders', 'stream', 1))
		select s.subscription from made, deed.subscribe('orders', case when made.made then 's' end) s`)
	later := keyed("later", 0)
	later.ProcessAfter = time.Now().Add(time.Hour)
	publish(t, db, later, keyed("a", 1), keyed("restored", 2))
	db.Exec(t, pgtest.Owner, `
		insert into deed.pending (subscription, slot, id, tenant_id, ord_at, process_after)
		select $1, slot, id, tenant_id, created_at, clock_timestamp() + interval '1 hour' from deed.log where key = 'restored'`, id)
	for i := range 4 { // owners that die without a record
		db.Exec(t, pgtest.Worker, `select deed.take_lanes($1::text::uuid, 'gone', array[$2::int], p_protocol => 2)`, fmt.Sprintf("00000000-0000-0000-0000-%012d", i+1), id)
		db.Exec(t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() - interval '1 second'`)
		db.Exec(t, pgtest.Owner, `update deed.relays set seen_until = clock_timestamp()`)
	}
	sink := &recorder{}
	runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 }))
	eventually(t, "the page to be recorded and one to be finished", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(sum(messages), 0) from deed.progress`) == 3 &&
			pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`) == 2
	})
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for _, m := range sink.list {
		if m.Key == "later" {
			t.Error("the message came before its time")
		}
	}
}

// A lane that has stopped for a change of lanes says so again when a crash has
// taken it back.
func TestStream_StopForAChangeTakenBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	begun, release := make(chan struct{}, 10), make(chan struct{})
	sink := &recorder{fail: func(deed.Message) error { begun <- struct{}{}; <-release; return nil }}
	runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 2 }))
	eventually(t, "the lanes to be held", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(worker) from deed.lanes`) == 2
	})
	publish(t, db, keyed("k", 0)) // holds one lane up
	<-begun
	db.Exec(t, pgtest.Admin, `select deed.set_topic('orders', p_lanes => 3)`)
	eventually(t, "the other lane to stop", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(paused_at) from deed.lanes`) == 1
	})
	db.Exec(t, pgtest.Owner, `update deed.lanes set paused_at = null`)
	close(release)
	eventually(t, "the change to be made", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.lanes`) == 3
	})
}

func TestStream_StricterDefaultIsolation(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `do $$ begin execute format('alter database %I set default_transaction_isolation = ''repeatable read''', current_database()); end $$`)
	for _, role := range []pgtest.Role{pgtest.Worker, pgtest.App, pgtest.Admin} {
		db.Pool(role).Reset()
	}
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink))
	for i := range 20 {
		publish(t, db, keyed(fmt.Sprint(i%3), i))
	}
	eventually(t, "all to come", func() bool { n, _ := sink.counts(); return n == 20 })
	drained(t, c)
}
