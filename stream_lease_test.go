package deed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// gated is a sink whose deliveries wait at a gate; the first message of each
// key fails once before that, if it is asked to.
type gated struct {
	failFirst bool
	gate      chan struct{}

	mu    sync.Mutex
	tried map[string]bool
	began int
	last  context.Context // of the last call that waits
}

func (g *gated) Deliver(ctx context.Context, ms []deed.Message) []error {
	outcomes := make([]error, len(ms))
	waits := false
	g.mu.Lock()
	failed := map[string]bool{}
	for i, m := range ms {
		switch {
		case failed[m.Key]:
			outcomes[i] = deed.Unavailable(errors.New("held back"), 0)
		case g.failFirst && !g.tried[m.Key]:
			g.tried[m.Key], failed[m.Key] = true, true
			outcomes[i] = deed.AfterError(0, errors.New("not yet"))
		default:
			g.began++
			waits, g.last = true, ctx
		}
	}
	g.mu.Unlock()
	if waits {
		<-g.gate
	}
	return outcomes
}

func (g *gated) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.began
}

// isCut reports whether the last call that waits has been told to end.
func (g *gated) isCut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last.Err() != nil
}

type gatedBatch struct{ *gated }

func (gatedBatch) BatchSize() int { return 10 }

// A worker whose lease has ended, as it is cut off from the database, ends the
// calls that are under way and begins no other: of a page, and of what was put
// aside; of functions, and of sinks that take batches.
func TestContract_O14_NoStreamCallAfterTheLease(t *testing.T) {
	t.Parallel()
	for _, aside := range []bool{false, true} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("aside=%t batch=%t", aside, batch), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				g := &gated{failFirst: aside, gate: make(chan struct{}), tried: map[string]bool{}}
				var sink deed.Sink = g
				if batch {
					sink = gatedBatch{g}
				}
				// The deadline is that of a connection which is silent. An answer that
				// is only slow must keep it, also while it stops.
				options := func(name string, sink deed.Sink, deadline time.Duration) deed.Options {
					return stream(sink, func(o *deed.Options) {
						o.Worker, o.Topics[0].Lanes, o.Deadline, o.Grace = name, 1, deadline, time.Second
						o.Subscriptions[0].Lease, o.Subscriptions[0].Concurrency = time.Second, 4
					})
				}
				var f faults
				cut, stop := runOn(t, f.pool(t, db, pgtest.Worker), options("cut off", sink, 5*time.Second))
				eventually(t, "the client to be ready", func() bool { return cut.Ready(t.Context()) == nil })
				eventually(t, "the lane to be held", func() bool {
					return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(worker) from deed.lanes`) == 1
				})
				var msgs []deed.Message
				for i := range 100 {
					msgs = append(msgs, keyed(fmt.Sprint(i%4), i))
				}
				publish(t, db, msgs...)
				eventually(t, "the first calls", func() bool { return g.count() >= 1 })
				f.away.Store(true)
				f.silence()
				eventually(t, "the leases to end", func() bool {
					return pgtest.One[bool](t, db.Pool(pgtest.Worker), `
						select not exists (select from deed.lanes where lease_until > clock_timestamp())
						  and not exists (select from deed.pending where lease_until > clock_timestamp())`)
				})
				before := g.count()
				close(g.gate)
				other := &recorder{}
				c, _ := run(t, db, options("other", other, time.Minute))
				eventually(t, "the other worker to deliver them", func() bool { n, _ := other.counts(); return n == 100 })
				drained(t, c)
				if n := g.count(); n != before {
					t.Errorf("%d messages were handed over after the lease had ended; %d were under way", n-before, before)
				}
				f.away.Store(false)
				_ = stop()
			})
		}
	}
}

// A worker that hears that a run is another's hands over no more of it, whether
// its sink takes batches or not.
func TestContract_O14_LostRunEndsAfterTheCall(t *testing.T) {
	t.Parallel()
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch=%t", batch), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			g := &gated{failFirst: true, gate: make(chan struct{}), tried: map[string]bool{}}
			var sink deed.Sink = g
			if batch {
				sink = gatedBatch{g}
			}
			c, _ := runStream(t, db, stream(sink, func(o *deed.Options) {
				o.Topics[0].Lanes = 1
				o.Subscriptions[0].Lease = 10 * time.Second // it hears at a third; before that it must not lose it by itself
			}))
			var msgs []deed.Message
			for i := range 40 {
				msgs = append(msgs, keyed("k", i))
			}
			publish(t, db, msgs...)
			eventually(t, "the first call", func() bool { return g.count() == 1 })
			// As when another worker has taken it over.
			db.Exec(t, pgtest.Owner, `update deed.pending set claim = nextval('deed.claim_seq'), lease_until = clock_timestamp() + interval '1 hour'`)
			eventually(t, "the worker to hear of it", g.isCut)
			close(g.gate)
			eventually(t, "its finish to be refused", func() bool { return c.Stats()[0].StaleFinishes > 0 })
			if n := g.count(); n != 1 {
				t.Errorf("%d messages of a run that was lost were handed over after the first", n-1)
			}
			db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp()`)
			drained(t, c)
		})
	}
}

// A lease that is changed online is that of workers to come: one that runs knows only
// the one with which it started, by which it stops when it is cut off, and holds its
// lanes by that.
func TestContract_O14_LanesKeepTheLeaseOfTheirWorker(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runStream(t, db, stream(&recorder{}, func(o *deed.Options) { o.Topics[0].Lanes = 2 }))
	held := func(until string) bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `
			select count(l.worker) = 2 and min(l.lease_until) > clock_timestamp() + $1::text::interval
			  and (select min(r.seen_until) > clock_timestamp() + $1::text::interval from deed.relays r)
			from deed.lanes l`, until)
	}
	eventually(t, "the lanes to be held", func() bool { return held("15 seconds") })
	db.Exec(t, pgtest.Admin, `select deed.set_subscription('orders', 's', p_lease => '1 second')`)
	db.Exec(t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() + interval '4 seconds'`)
	db.Exec(t, pgtest.Owner, `update deed.relays set seen_until = clock_timestamp() + interval '4 seconds'`)
	eventually(t, "the lanes to be renewed for the lease with which they were taken", func() bool { return held("15 seconds") })
}
