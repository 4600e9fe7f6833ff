// Package claim works on rows of deed.pending: messages that are claimed,
// attempted, and finished or failed one by one. [Queue] drains a subscription
// that way; what a stream has put aside is claimed by internal/stream, and
// renewed and settled by what is here.
//
// It knows how the database's functions are called, and nothing of sinks and
// handlers: those are behind a [Destination].
package claim

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/upkeep"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// maxBytes is what one claim or page should weigh at the most; its size follows
// the payloads' average.
const maxBytes = 32 << 20

// A Destination is where a subscription's messages go. Its methods are called
// from many goroutines.
type Destination interface {
	// Deliver attempts the messages and returns an outcome each, nil or a
	// [*Failed]; nil means that all were delivered. It may panic.
	Deliver(ctx context.Context, msgs []*Message) []error

	// Limit says how many of n messages may be attempted now, and if none when
	// to ask again: while the destination is down it is asked one at a time.
	Limit(n int) (int, time.Duration)

	// PassOver are the tenants whose messages have failed since it went down:
	// what is tried next is another's, if there is one.
	PassOver() []tenant.ID

	// Forgive forgets those tenants: there are no others.
	Forgive()

	// Favoured is a tenant whose messages come first in the next claim, and in that
	// alone: the destination has answered it, and failed with others'. Nil: none.
	Favoured() *tenant.ID
}

// Options say what a subscription is, and how it is worked on.
type Options struct {
	Topic, Name   string
	Worker        string                 // this process, for people
	Concurrency   int                    // calls of the destination at once
	Batch         int                    // most messages a claim
	Group         int                    // most messages a call of the destination; 0: it takes one at a time
	Deadline      time.Duration          // of a statement
	Grace         time.Duration          // how long a stop waits before it cancels deliveries
	Destination   Destination            // where its messages go
	Log           *slog.Logger           // with the topic and the subscription
	LogAttributes func(m *Message) []any // what a log line says of a message
}

// Subscription is one that this process works on. It outlasts changes of what
// its topic is: a [Queue] and a stream's reader share it, and what they count and
// learn stays.
type Subscription struct {
	Options
	Counters Counters
	wake     chan struct{} // holds 1: there may be something to claim

	// Set when it has been registered, before anything works on it.
	ID     int
	Lease  time.Duration // of claims, and of lanes
	DB     *pgxpool.Pool
	Upkeep *upkeep.Keeper

	// What the topic is: the registration says it, then the watcher and the assigner
	// of lanes, and claims that are refused. Whoever changes one of them ends the
	// work on the subscription as what it was.
	isStream  atomic.Bool
	isRemoved atomic.Bool

	mu          sync.Mutex
	end         context.CancelCauseFunc // guarded by mu: ends the work; nil before the first
	payloadSize float64                 // guarded by mu: average, bytes; 0: not known
}

// New returns a subscription that is not registered yet.
func New(opts Options) *Subscription {
	return &Subscription{Options: opts, wake: make(chan struct{}, 1)}
}

// Label names it for people.
func (s *Subscription) Label() string { return s.Topic + "/" + s.Name }

// Loop are the options of a loop that drains its pending rows.
func (s *Subscription) Loop() work.Options {
	return work.Options{
		Concurrency: s.Concurrency, Batch: s.Batch, Group: s.Group,
		Lease: s.Lease, Deadline: s.Deadline, Grace: s.Grace,
		Wake: s.wake, Logger: s.Log,
	}
}

// Wake makes the loop look for messages; it never blocks.
func (s *Subscription) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Bounded is the context of one statement.
func (s *Subscription) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Deadline)
}

// LogOf is the log for what concerns m.
func (s *Subscription) LogOf(m *Message) *slog.Logger { return s.Log.With(s.LogAttributes(m)...) }

// Weigh keeps the payloads' average size, by which claims and pages are limited.
// It forgets slowly what was large: too small a claim costs a round trip, too
// large a one memory.
func (s *Subscription) Weigh(size, count int) {
	if count == 0 {
		return
	}
	average := max(1, float64(size)/float64(count)) // 0 would be unknown
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloadSize = max(average, (s.payloadSize+average)/2)
}

// Weighed reports whether it is known how large payloads are.
func (s *Subscription) Weighed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.payloadSize > 0
}

// Fit is how many of n messages should be read at once.
func (s *Subscription) Fit(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.payloadSize > 0 {
		return max(1, min(n, int(maxBytes/s.payloadSize)))
	}
	return n
}

// Limit stops claims while the destination is down.
func (s *Subscription) Limit(n int) (int, time.Duration) { return s.Destination.Limit(s.Fit(n)) }
