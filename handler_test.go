package deed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// typedNil is the classic: a nil of a type whose Error looks into it.
type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// Whatever one handler returns, it is that message's business alone.
func TestHandler_OutcomesThatHurtNobodyElse(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]error{
		"a few microseconds": deed.After(35 * time.Microsecond), "a nanosecond": deed.After(1),
		"centuries": deed.After(1<<63 - 1), "a typed nil": (*typedNil)(nil), "wrapped": fmt.Errorf("x: %w", error((*typedNil2)(nil))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var others recorder
			var bad atomic.Int64
			c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", MaxAttempts: 3, Sink: deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
				if m.Key == "bad" {
					if bad.Add(1) == 1 {
						return outcome
					}
					return nil
				}
				return others.Deliver(ctx, []deed.Message{m})[0]
			})}}})
			msgs := make([]deed.Message, 20)
			for n := range msgs {
				msgs[n] = message("orders", n)
			}
			msgs[7].Key = "bad"
			publish(t, db, msgs...)
			eventually(t, "the others to be recorded", func() bool { return c.Stats()[0].Delivered >= 19 && c.Stats()[0].Failed == 1 })
			if n, repeats := others.counts(); n != 19 || repeats != 0 {
				t.Errorf("%d others were delivered, with %d repeats", n, repeats)
			}
		})
	}
}

type typedNil2 struct{ err error }

func (e *typedNil2) Error() string { return "two" }
func (e *typedNil2) Unwrap() error { return e.err }

// A lease that is lowered while a worker runs doubles nothing (O14).
func TestClient_LeaseLoweredOnline(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var calls atomic.Int64
	started, release := make(chan struct{}), make(chan struct{})
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Lease: 18 * time.Second, Sink: deed.SinkFunc(func(context.Context, deed.Message) error {
		if calls.Add(1) == 1 {
			close(started)
		}
		<-release
		return nil
	})}}})
	publish(t, db, message("orders", 1))
	<-started
	db.Exec(t, pgtest.Admin, `select deed.set_subscription('orders', 's', p_lease => '3 seconds')`)
	ended := time.After(8 * time.Second) // the lease that it began with was renewed every 6
	select {
	case <-ended:
	case <-t.Context().Done():
	}
	close(release)
	drained(t, c)
	if n := calls.Load(); n != 1 {
		t.Errorf("delivered %d times", n)
	}
}

// Handlers that hold all connections of the pool they share with the client
// do not starve its renewals.
func TestClient_HandlersHoldThePool(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.NewPool(pgtest.Worker, 4)
	var r recorder
	sink := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if _, err := conn.Exec(ctx, `select pg_sleep(1.5)`); err != nil {
			return err
		}
		return r.Deliver(ctx, []deed.Message{m})[0]
	})
	// A renewal that stood behind two clients' sixteen handlers would wait for ten seconds.
	opts := deed.Options{Deadline: 4 * time.Second, Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Lease: 14 * time.Second, Sink: sink}}}
	for range 2 {
		c, _ := runOn(t, pool, opts)
		eventually(t, "the client to be ready", func() bool { return c.Ready(t.Context()) == nil })
	}
	for n := range 60 {
		publish(t, db, message("orders", n))
	}
	over := 0 // where claims starve as well, nothing is claimed again
	eventually(t, "all to be delivered", func() bool {
		over = max(over, pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where lease_until < clock_timestamp()`))
		n, _ := r.counts()
		return n == 60
	})
	if _, repeats := r.counts(); repeats != 0 || over != 0 {
		t.Errorf("%d leases ran out, %d repeats", over, repeats)
	}
}

// A sink that returns too many outcomes has delivered nothing, for all we know.
func TestClient_WrongNumberOfOutcomes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := &wrongCount{}
	c, stop := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: b, MaxAttempts: 1}}})
	publish(t, db, message("orders", 1), message("orders", 2))
	eventually(t, "both to be dead", func() bool { return c.Stats()[0].Dead == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := c.Stats()[0].Delivered; got != 0 {
		t.Errorf("%d counted as delivered", got)
	}
}

type wrongCount struct{}

func (wrongCount) BatchSize() int { return 10 }
func (wrongCount) Deliver(_ context.Context, ms []deed.Message) []error {
	return make([]error, len(ms)+1)
}
