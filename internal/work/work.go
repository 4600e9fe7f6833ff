// Package work is the one loop that drains things: claim, run, settle.
//
// It keeps a bounded number of items in hand, renews their leases while they
// are queued or running, records outcomes and claims more in the same round
// trip, waits for wake-ups when there is nothing to do, and stops in two
// phases. It knows nothing of what it drains: that is its [Source].
package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/crash"
)

// ErrStopping is the cause with which items' contexts end when a stop has
// used up its grace.
var ErrStopping = errors.New("the worker is stopping")

// ErrLeaseLost is the cause with which an item's context ends when its claim
// has gone to another worker.
var ErrLeaseLost = errors.New("the claim has gone to another worker")

// A Panic is what an attempt returned instead of an outcome.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Source is what a loop drains. Its methods may be called at the same time.
type Source[T comparable] interface {
	// Exchange records what became of done and claims up to n more items, in
	// one round trip. Recording the same outcomes twice must be harmless: after
	// an error the loop brings them again. next is when to ask again if nothing
	// was claimed; 0 leaves it to wake-ups.
	Exchange(ctx context.Context, done []Done[T], n int) (claimed []T, next time.Duration, err error)

	// Extend renews the leases of held and returns those that are lost.
	Extend(ctx context.Context, held []T) (lost []T, err error)

	// Do attempts items and returns an outcome each; nil means all succeeded.
	Do(ctx context.Context, items []T) []error

	// Limit says how many items may be claimed now, at most n, and if none
	// when to ask again.
	Limit(n int) (int, time.Duration)
}

// Done is an item that is out of the loop's hands once it is recorded.
type Done[T comparable] struct {
	Item T
	Err  error
	// Released says that the item was not attempted, or that its attempt was
	// cut short by a stop: it goes back and no attempt is counted.
	Released bool
}

// Options tune a loop. The zero value works.
type Options struct {
	Concurrency int           // calls to Do at once; default 16
	Batch       int           // most items a claim; default 200
	Group       int           // most items a call to Do; default 1
	Lease       time.Duration // renewed at a third of it; default 30s
	Deadline    time.Duration // of each call to Exchange and Extend; default 10s
	Grace       time.Duration // how long a stop waits before it cancels; default 20s
	Wake        <-chan struct{}
	Logger      *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Concurrency = cmp.Or(o.Concurrency, 16)
	o.Batch = cmp.Or(o.Batch, 200)
	o.Group = cmp.Or(o.Group, 1)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// flushDelay bounds how long an outcome waits for company while other items
// are still running.
const flushDelay = 5 * time.Millisecond

// abandonAfter bounds how long a stop waits for attempts that ignore their
// context; they stay claimed until their lease runs out.
const abandonAfter = 5 * time.Second

// Run drains src until ctx ends. Then it claims no more, gives back what has
// not started, and waits for what is running; past the grace it cancels that,
// with [ErrStopping]. It returns nil unless attempts had to be abandoned.
func Run[T comparable](ctx context.Context, src Source[T], opts Options) error {
	opts = opts.withDefaults()
	capacity := 2 * opts.Batch
	l := &loop[T]{
		src:     src,
		opts:    opts,
		queue:   make(chan []*unit[T], capacity),
		results: make(chan []*unit[T], capacity),
		held:    map[*unit[T]]struct{}{},
		hungry:  true,
		countAt: time.Now(),
	}
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var runners sync.WaitGroup
	for range opts.Concurrency {
		runners.Go(func() { l.runner(running) })
	}
	l.drive(ctx)
	err := l.stop(ctx, cancel)
	close(l.queue)
	cancel(ErrStopping)
	if err == nil {
		runners.Wait()
	}
	return err
}

// unit is an item in the loop's hands.
type unit[T comparable] struct {
	item    T
	mu      sync.Mutex
	renewed time.Time               // guarded by mu
	lost    bool                    // guarded by mu
	cancel  context.CancelCauseFunc // guarded by mu; not nil while running
	outcome Done[T]
}

type loop[T comparable] struct {
	src     Source[T]
	opts    Options
	queue   chan []*unit[T]
	results chan []*unit[T]

	// The fields below belong to the driving goroutine.
	held     map[*unit[T]]struct{} // claimed, no outcome yet
	done     []*unit[T]            // outcome known, not recorded
	doneAt   time.Time             // when done became non-empty
	hungry   bool                  // there may be something to claim
	askAt    time.Time             // when to be hungry again; zero: when woken
	rate     float64               // outcomes per second, lately
	counted  int                   // outcomes since countedAt
	countAt  time.Time             // when counting began
	failures int                   // exchanges that failed in a row
}

func (l *loop[T]) drive(ctx context.Context) {
	renew := time.NewTicker(max(l.opts.Lease/3, 10*time.Millisecond))
	defer renew.Stop()
	poll := time.NewTimer(0)
	defer poll.Stop()
	for ctx.Err() == nil {
		wait := l.step(ctx)
		if wait == 0 {
			continue
		}
		poll.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.opts.Wake:
			l.hungry = true
		case <-poll.C:
		case units := <-l.results:
			l.collect(units)
		case <-renew.C:
			l.renew(ctx)
		}
	}
}

// step exchanges if it is time to, and returns how long nothing needs doing
// unless something happens.
func (l *loop[T]) step(ctx context.Context) time.Duration {
	l.collectReady()
	if !l.askAt.IsZero() && !time.Now().Before(l.askAt) {
		l.hungry, l.askAt = true, time.Time{}
	}
	n, pause := 0, time.Duration(0)
	if l.hungry {
		if n = l.room(); n > 0 {
			n, pause = l.src.Limit(n)
		}
	}
	flush := len(l.done) > 0 && (len(l.done) >= l.opts.Batch || len(l.held) == 0 || time.Since(l.doneAt) >= flushDelay)
	switch {
	case n > 0, flush:
		// A flush claims as well: the round trip is paid for.
		if n == 0 && l.room() > 0 && pause == 0 {
			n, _ = l.src.Limit(l.room())
		}
		return l.exchange(ctx, n)
	case len(l.done) > 0:
		return max(flushDelay-time.Since(l.doneAt), time.Microsecond)
	case pause > 0:
		return pause
	case !l.askAt.IsZero():
		return max(time.Until(l.askAt), time.Microsecond)
	default:
		return time.Hour
	}
}

// room is how many more items may be claimed: enough to keep the runners busy
// for about a second, so that slow attempts do not hoard what other workers
// could do, and never more than two batches in all.
func (l *loop[T]) room() int {
	busy := max(2*l.opts.Concurrency*l.opts.Group, int(l.rate))
	room := min(busy, 2*l.opts.Batch) - len(l.held)
	room = min(room, l.opts.Batch)
	if room < min(busy, l.opts.Batch)/2 {
		return 0
	}
	return room
}

func (l *loop[T]) exchange(ctx context.Context, n int) time.Duration {
	done := make([]Done[T], len(l.done))
	for i, u := range l.done {
		done[i] = u.outcome
	}
	crash.Point("settling")
	// A stop must not cut it short: the server may have claimed already, and
	// what is not known here waits for its lease.
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Deadline)
	started := time.Now()
	claimed, next, err := l.src.Exchange(dctx, done, n)
	cancel()
	if err != nil {
		return l.exchangeFailed(ctx, err)
	}
	if len(done) > 0 {
		crash.Point("settled")
	}
	l.failures = 0
	l.measure(len(done))
	l.done = l.done[:0]
	l.take(claimed, started)
	if n == 0 {
		return 0
	}
	l.hungry = len(claimed) == n
	switch {
	case l.hungry:
		l.askAt = time.Time{}
	case len(claimed) > 0:
		// The flush of these will look again; this is for when they are lost.
		l.askAt = time.Now().Add(time.Second)
	case next > 0:
		l.askAt = time.Now().Add(next)
	default:
		l.askAt = time.Time{}
	}
	return 0
}

func (l *loop[T]) exchangeFailed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	l.failures++
	l.hungry = true
	l.opts.Logger.Warn("database exchange failed; will try again", "error", err, "failures", l.failures)
	pause := Backoff(l.failures, 50*time.Millisecond, 5*time.Second)
	l.doneAt = time.Now().Add(pause)
	Sleep(ctx, pause)
	return 0
}

// Backoff returns the pause after the n-th failure in a row: base doubled each
// time up to most, and with jitter that never takes more than half of it.
func Backoff(n int, base, most time.Duration) time.Duration {
	d := most
	if n < 30 && base<<(n-1) < most {
		d = base << (n - 1)
	}
	return d/2 + rand.N(d/2+1)
}

func (l *loop[T]) measure(finished int) {
	l.counted += finished
	elapsed := time.Since(l.countAt)
	if elapsed < 50*time.Millisecond {
		return
	}
	l.rate = (l.rate + float64(l.counted)/elapsed.Seconds()) / 2
	l.counted, l.countAt = 0, time.Now()
}

func (l *loop[T]) take(claimed []T, at time.Time) {
	if len(claimed) > 0 {
		crash.Point("claimed")
	}
	for len(claimed) > 0 {
		k := min(l.opts.Group, len(claimed))
		group := make([]*unit[T], k)
		for i, item := range claimed[:k] {
			group[i] = &unit[T]{item: item, renewed: at}
			l.held[group[i]] = struct{}{}
		}
		claimed = claimed[k:]
		l.queue <- group
	}
}

func (l *loop[T]) collect(units []*unit[T]) {
	if len(l.done) == 0 {
		l.doneAt = time.Now()
	}
	for _, u := range units {
		delete(l.held, u)
		u.mu.Lock()
		lost := u.lost
		u.mu.Unlock()
		// What was lost is still brought to Exchange: there it finishes
		// nothing, and the attempt to is counted.
		if lost && u.outcome.Released {
			continue
		}
		l.done = append(l.done, u)
	}
}

func (l *loop[T]) collectReady() {
	for {
		select {
		case units := <-l.results:
			l.collect(units)
		default:
			return
		}
	}
}

// renew extends everything in hand. What is lost has its context cancelled,
// unless it shares the context with others that may not be.
func (l *loop[T]) renew(ctx context.Context) {
	if len(l.held) == 0 {
		return
	}
	units := make([]*unit[T], 0, len(l.held))
	for u := range l.held {
		units = append(units, u)
	}
	if err := l.extend(ctx, units); err != nil && ctx.Err() == nil {
		l.opts.Logger.Warn("lease renewal failed; will try again", "error", err, "held", len(units))
	}
}

func (l *loop[T]) extend(ctx context.Context, units []*unit[T]) error {
	items := make([]T, len(units))
	for i, u := range units {
		items[i] = u.item
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Deadline)
	defer cancel()
	started := time.Now()
	lost, err := l.src.Extend(ctx, items)
	if err != nil {
		return err
	}
	gone := make(map[any]bool, len(lost))
	for _, item := range lost {
		gone[item] = true
	}
	for _, u := range units {
		u.mu.Lock()
		if gone[any(u.item)] {
			u.lost = true
			if u.cancel != nil && l.opts.Group == 1 {
				u.cancel(ErrLeaseLost)
			}
		} else {
			u.renewed = started
		}
		u.mu.Unlock()
	}
	return nil
}

// runner attempts groups until the queue is closed.
func (l *loop[T]) runner(ctx context.Context) {
	for group := range l.queue {
		l.results <- l.attempt(ctx, group)
	}
}

func (l *loop[T]) attempt(ctx context.Context, group []*unit[T]) []*unit[T] {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := l.begin(ctx, cancel, group)
	if len(ready) == 0 {
		return group
	}
	items := make([]T, len(ready))
	for i, u := range ready {
		items[i] = u.item
	}
	crash.Point("attempting")
	outcomes := l.do(ctx, items)
	crash.Point("attempted")
	stopped := errors.Is(context.Cause(ctx), ErrStopping)
	for i, u := range ready {
		var err error
		if outcomes != nil {
			err = outcomes[i]
		}
		u.outcome = Done[T]{Item: u.item, Err: err, Released: err != nil && stopped}
		u.mu.Lock()
		u.cancel = nil
		u.mu.Unlock()
	}
	return group
}

// begin marks the units of group as running and returns those that may be
// attempted. What was claimed or renewed too long ago, as after the process was
// frozen, is renewed first: only the database knows whether it is still ours.
func (l *loop[T]) begin(ctx context.Context, cancel context.CancelCauseFunc, group []*unit[T]) []*unit[T] {
	var stale []*unit[T]
	for _, u := range group {
		u.mu.Lock()
		if time.Since(u.renewed) > l.opts.Lease*2/3 {
			stale = append(stale, u)
		}
		u.mu.Unlock()
	}
	for n := 1; len(stale) > 0; n++ {
		if err := l.extend(ctx, stale); err == nil {
			break
		}
		if !Sleep(ctx, Backoff(n, 50*time.Millisecond, 5*time.Second)) {
			break
		}
	}
	ready := make([]*unit[T], 0, len(group))
	for _, u := range group {
		u.mu.Lock()
		if u.lost || ctx.Err() != nil {
			u.outcome = Done[T]{Item: u.item, Released: true}
		} else {
			u.cancel = cancel
			ready = append(ready, u)
		}
		u.mu.Unlock()
	}
	return ready
}

// do is src.Do with a panic turned into the outcome of all of its items.
func (l *loop[T]) do(ctx context.Context, items []T) (outcomes []error) {
	defer func() {
		if v := recover(); v != nil {
			p := &Panic{Value: v, Stack: debug.Stack()}
			outcomes = make([]error, len(items))
			for i := range outcomes {
				outcomes[i] = p
			}
		}
	}()
	outcomes = l.src.Do(ctx, items)
	if outcomes != nil && len(outcomes) != len(items) {
		err := fmt.Errorf("%d outcomes for %d items: all of them count as failed", len(outcomes), len(items))
		outcomes = make([]error, len(items))
		for i := range outcomes {
			outcomes[i] = err
		}
	}
	return outcomes
}

// stop is both phases: give back what has not started, wait for the rest,
// cancel it when the grace is over, and record all outcomes.
func (l *loop[T]) stop(ctx context.Context, cancel context.CancelCauseFunc) error {
	ctx = context.WithoutCancel(ctx)
	for drained := false; !drained; {
		select {
		case group := <-l.queue:
			for _, u := range group {
				u.outcome = Done[T]{Item: u.item, Released: true}
			}
			l.collect(group)
		default:
			drained = true
		}
	}
	renew := time.NewTicker(max(l.opts.Lease/3, 10*time.Millisecond))
	defer renew.Stop()
	grace := time.NewTimer(l.opts.Grace)
	defer grace.Stop()
	var abandon <-chan time.Time
	for len(l.held) > 0 {
		l.record(ctx)
		select {
		case units := <-l.results:
			l.collect(units)
		case <-renew.C:
			l.renew(ctx)
		case <-grace.C:
			cancel(ErrStopping)
			abandon = time.After(abandonAfter)
		case <-abandon:
			l.record(ctx)
			return fmt.Errorf("%d attempts did not return after they were cancelled; they stay claimed until their lease ends", len(l.held))
		}
	}
	for n := 1; len(l.done) > 0 && n <= 5; n++ {
		if l.record(ctx) != nil {
			Sleep(ctx, Backoff(n, 50*time.Millisecond, time.Second))
		}
	}
	return nil
}

// record brings outcomes to the source without claiming.
func (l *loop[T]) record(ctx context.Context) error {
	if len(l.done) == 0 {
		return nil
	}
	done := make([]Done[T], len(l.done))
	for i, u := range l.done {
		done[i] = u.outcome
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Deadline)
	defer cancel()
	if _, _, err := l.src.Exchange(ctx, done, 0); err != nil {
		l.opts.Logger.Warn("outcomes not recorded while stopping", "error", err, "outcomes", len(done))
		return err
	}
	l.done = l.done[:0]
	return nil
}

// Sleep waits for d and reports whether it did; false, ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
