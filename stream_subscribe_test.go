package deed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// Subscriptions that a stream is given later, while publishers run, miss nothing
// they asked for: the one from the beginning gets all, the one from now what
// commits after it was made, also if it was published before.
func TestContract_O18_StreamSubscribedUnderPublishers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := &recorder{}
	c, _ := runStream(t, db, stream(first))
	stopPublishing := publishers(t, db, 3, 20)
	eventually(t, "some to be published", func() bool { n, _ := first.counts(); return n >= 50 })

	open, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback(context.Background())
	lateOne, err := deed.Publish(t.Context(), open, keyed("late", 0))
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string, from deed.From) func(*deed.Options) {
		return func(o *deed.Options) { o.Subscriptions[0].Name, o.Subscriptions[0].From = name, from }
	}
	beginning, now := &recorder{}, &recorder{}
	fromBeginning, _ := runStream(t, db, stream(beginning, named("all", deed.FromBeginning)))
	fromNow, _ := runStream(t, db, stream(now, named("new", deed.FromNow)))
	seen := pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select w.cur::text from deed.windows w join deed.subscriptions s on s.since_window = w.n where s.name = 'new'`)
	before, _ := first.counts()
	eventually(t, "more to be published", func() bool { n, _ := first.counts(); return n >= before+50 })
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := stopPublishing() + 1
	for _, client := range []*deed.Client{c, fromBeginning, fromNow} {
		drained(t, client)
	}
	for name, r := range map[string]*recorder{"first": first, "from the beginning": beginning} {
		if got, repeats := r.counts(); got != n || repeats != 0 {
			t.Errorf("%s: %d messages came, %d again; want %d and none", name, got, repeats, n)
		}
		inOrder(t, r.succeeded())
	}
	want := map[int64]bool{}
	rows, err := db.Pool(pgtest.Worker).Query(t.Context(), `select id from deed.log where not pg_visible_in_snapshot(xid, $1::text::pg_snapshot)`, seen)
	if err != nil {
		t.Fatal(err)
	}
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { want[id] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if !want[lateOne[0].ID.Seq()] || len(want) >= n {
		t.Errorf("of %d messages %d came after the subscription; the late one among them: %v", n, len(want), want[lateOne[0].ID.Seq()])
	}
	got, repeats := now.counts()
	if got != len(want) || repeats != 0 {
		t.Errorf("from now: %d messages came, %d again; want %d and none", got, repeats, len(want))
	}
	for _, m := range now.succeeded() {
		if !want[m.Seq] {
			t.Errorf("from now: message %d had committed before", m.Seq)
		}
	}
	inOrder(t, now.succeeded())
}

// inBatches is a function as a sink that takes several messages a call.
type inBatches struct{ deed.SinkFunc }

func (inBatches) BatchSize() int { return 20 }

// A sink that takes batches holds back, within a call, what stands behind a
// message that it did not deliver: that keeps the order and costs no attempt.
func TestContract_O13_BatchesKeepTheOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var tries atomic.Int64
	record := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && string(m.Payload) == `{"n":3}` && tries.Add(1) < 3 {
			return deed.AfterError(20*time.Millisecond, errors.New("not yet"))
		}
		return nil
	}}
	sink := inBatches{func(ctx context.Context, m deed.Message) error { return record.Deliver(ctx, []deed.Message{m})[0] }}
	c, stop := runStream(t, db, stream(sink, func(o *deed.Options) { o.Subscriptions[0].MaxAttempts = 3; o.Topics[0].Lanes = 1 }))
	var many []deed.Message
	for i := range 200 {
		many = append(many, keyed("bad", i), keyed("good", i))
	}
	publish(t, db, many...)
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, repeats := record.counts(); n != 400 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 400 and none", n, repeats)
	}
	inOrder(t, record.succeeded())
	for _, m := range record.list {
		if m.Attempt > 1 && string(m.Payload) != `{"n":3}` {
			t.Errorf("message %d of key %s had attempt %d", m.Seq, m.Key, m.Attempt)
		}
	}
}

// What a transaction publishes once it has asked for a stream from now, or for
// its topic to be one, is the stream's: others end beside it, so that its own
// snapshots are past its own id, which they do not list.
func TestContract_O18_PublishedWhereItWasAskedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Admin, `select deed.declare_topic('orders', 'stream')`)
	db.Exec(t, pgtest.Admin, `select deed.subscribe('calls', 's')`)
	tx := openTx(t, db, pgtest.Owner, `select pg_current_xact_id()`)
	publish(t, db, message("others", 1)) // a later id that has ended
	if _, err := tx.Exec(t.Context(), `
		do $$
		begin
			perform deed.subscribe('orders', 's', 'now');
			perform deed.set_topic('calls', p_mode => 'stream');
			for n in 1..3 loop
				perform deed.publish('orders', jsonb_build_object('n', n));
				perform deed.publish('calls', jsonb_build_object('n', n));
			end loop;
		end
		$$`); err != nil {
		t.Fatal(err)
	}
	publish(t, db, message("others", 2))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"orders", "calls"} {
		var lines recorder
		c, _ := runStream(t, db, stream(&lines, func(o *deed.Options) {
			o.Topics[0].Name, o.Subscriptions[0].Topic = topic, topic
		}))
		eventually(t, "what was published to "+topic, func() bool { n, _ := lines.counts(); return n >= 3 })
		drained(t, c)
		if n, repeats := lines.counts(); n != 3 || repeats != 0 {
			t.Errorf("%s: %d messages came, %d again; want 3 and none", topic, n, repeats)
		}
	}
}
