package deed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A sink that is down loses nothing and does not stop the others, be the topic
// a queue or a stream.
func TestContract_O12_OneSinkDownStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, mode := range []deed.Mode{deed.ModeQueue, deed.ModeStream} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var down atomic.Bool
			down.Store(true)
			away := &recorder{fail: func(deed.Message) error {
				if down.Load() {
					return deed.Unavailable(errors.New("away"), 10*time.Millisecond)
				}
				return nil
			}}
			well := &recorder{}
			c, _ := runStream(t, db, deed.Options{
				Topics: []deed.Topic{{Name: "orders", Mode: mode}},
				Subscriptions: []deed.Subscription{
					{Topic: "orders", Name: "away", Sink: away}, {Topic: "orders", Name: "well", Sink: well},
				},
			})
			for i := range 100 {
				publish(t, db, keyed(fmt.Sprint(i%5), i))
			}
			eventually(t, "the sink that is well to have all", func() bool { n, _ := well.counts(); return n == 100 })
			if n, _ := away.counts(); n != 0 {
				t.Errorf("the sink that is away has %d", n)
			}
			down.Store(false)
			drained(t, c)
			if n, _ := away.counts(); n != 100 {
				t.Errorf("the sink that was away has %d of 100", n)
			}
		})
	}
}

// A clean stop in the middle of a page repeats nothing: what was delivered
// beyond what was not is recorded, and what was not is put aside.
func TestStream_StopInMidPage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	began, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	sink := &recorder{}
	slow := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		if m.Key == "slow" && first.CompareAndSwap(false, true) {
			close(began)
			<-release
		}
		return errors.Join(sink.Deliver(ctx, []deed.Message{m})...)
	})
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('orders', 'stream', 1)`)
	opts := stream(slow, func(o *deed.Options) { o.Topics = nil })
	var msgs []deed.Message
	for i := range 20 {
		msgs = append(msgs, keyed("slow", i), keyed(fmt.Sprint("fast", i), i))
	}
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 's')`)
	publish(t, db, msgs...)
	_, stop := run(t, db, opts)
	<-began
	// Not all: those whose keys share the hand of the slow one stand behind it.
	eventually(t, "the others to be delivered", func() bool { n, _ := sink.counts(); return n >= 10 })
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	eventually(t, "the stop to have begun", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.relays`) == 0
	})
	close(release)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	before, _ := sink.counts()
	if before == 40 {
		t.Fatal("the stop came too late to show anything")
	}
	c, _ := run(t, db, opts)
	eventually(t, "the rest to come", func() bool { n, _ := sink.counts(); return n == 40 })
	drained(t, c)
	if n, repeats := sink.counts(); n != 40 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
	inOrder(t, sink.succeeded())
}
