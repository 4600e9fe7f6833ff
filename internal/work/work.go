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
	"maps"
	"math/rand/v2"
	"slices"
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
	// an error the loop brings them again; what was claimed all the same it
	// takes. An error that is [Unrecorded] is of some of them alone. next is when to ask again if nothing was claimed; 0 leaves it to
	// wake-ups.
	Exchange(ctx context.Context, done []Done[T], n int) (claimed []T, next time.Duration, err error)

	// Extend renews the leases of held and returns those that are lost. An error that is [Unrenewed] names those that it has
	// passed over, which are neither; the others are.
	Extend(ctx context.Context, held []T) (lost []T, err error)

	// Do attempts items and returns an outcome each; nil means all succeeded.
	// One that takes several steps asks [Held], or [Ours], before each.
	Do(ctx context.Context, items []T) []error

	// Limit says how many items may be claimed now, at most n, and if none
	// when to ask again.
	Limit(n int) (int, time.Duration)
}

// Grouper is a Source that says which of the items of a claim one call to Do takes;
// with others it is [Options.Group] of them, in their order. Their outcomes are one
// thing: they are brought to Exchange together, always.
type Grouper[T comparable] interface {
	Groups(claimed []T) [][]T
}

// Loser is a Source that is told what is lost, once that is sure: what Extend has said of it the first time is asked again, and not believed where it cannot be.
type Loser[T comparable] interface {
	Lost(items []T)
}

// Expirer is a Source that is asked of an item whose outcome could not be recorded, when its lease is over by this
// process's clocks: true lets go of it, unrecorded. With others it is tried on.
type Expirer[T comparable] interface {
	Expired(item T) bool
}

// Receiver is a Source to which items come by an intake, too.
type Receiver[T comparable] interface {
	Intake() *Intake[T]
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
	Ahead       int           // at least so many items beside those that all calls take may be in hand; default as many as those; -1: none
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
	o.Ahead = max(cmp.Or(o.Ahead, o.Concurrency*o.Group), 0)
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
		src:      src,
		opts:     opts,
		stopping: ctx.Done(),
		queue:    make(chan []*unit[T], capacity),
		results:  make(chan []*unit[T], capacity),
		held:     map[*unit[T]]struct{}{},
		leased:   map[*unit[T]]struct{}{},
		hungry:   true,
		behind:   true,
		countAt:  time.Now(),
		nudge:    make(chan struct{}, 1),
	}
	if src, ok := l.src.(Receiver[T]); ok {
		l.intake = src.Intake()
		l.intake.open(l)
	}
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var runners sync.WaitGroup
	for range opts.Concurrency {
		runners.Go(func() { l.runner(running, &runners) })
	}
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	var renewer sync.WaitGroup
	renewer.Go(func() { l.renewer(renewing) })
	l.drive(ctx)
	err := l.stop(ctx, cancel)
	stopRenewing()
	renewer.Wait()
	close(l.queue)
	cancel(ErrStopping)
	if len(l.held) == 0 {
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
	settle  bool                    // guarded by mu: its outcome is being recorded
	cancel  context.CancelCauseFunc // guarded by mu; not nil while running
	outcome Done[T]
	call    int        // the same of those that one call to Do takes
	group   []*unit[T] // guarded by mu: those that are attempted with it, while it is running
}

type loop[T comparable] struct {
	src      Source[T]
	opts     Options
	stopping <-chan struct{} // closed when nothing more is begun
	queue    chan []*unit[T]
	results  chan []*unit[T]

	mu     sync.Mutex
	leased map[*unit[T]]struct{} // guarded by mu: claimed, outcome not recorded
	calls  int                   // guarded by mu: to Do, so far

	intake *Intake[T]    // nil: it has none
	nudge  chan struct{} // holds one: the intake has more room than it took

	renewing sync.RWMutex // held for reading while the renewer works

	// The fields below belong to the driving goroutine.
	held     map[*unit[T]]struct{} // claimed, no outcome yet
	done     []*unit[T]            // outcome known, not recorded
	doneAt   time.Time             // when done became non-empty
	hungry   bool                  // there may be something to claim
	woken    bool                  // it is said so by who has made it
	behind   bool                  // more may be waiting than the last claim had room for
	together time.Time             // until when a claim that was woken waits for the outcomes of what is being done, to go with them
	askAt    time.Time             // when to be hungry again; zero: when woken
	rate     float64               // outcomes per second, lately
	counted  int                   // outcomes since countAt
	countAt  time.Time             // when counting began
	failures int                   // exchanges that failed in a row
	retryAt  time.Time             // no exchange before; after a failure
	shrink   int                   // claims ask for 1/2^shrink of the room
	split    int                   // outcomes are recorded 1/2^split at a time, apart from claims
	apart    bool                  // the last turn was for outcomes
	aside    aside[T]              // outcomes that somebody's lock keeps from being recorded
}

// isStopping is asked by who begins something, whatever the driving goroutine is
// about: it may wait for an exchange long after the stop.
func (l *loop[T]) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

func (l *loop[T]) drive(ctx context.Context) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for ctx.Err() == nil {
		wait := l.untilAside(l.step(ctx))
		if wait == 0 {
			continue
		}
		poll.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.opts.Wake:
			l.hungry, l.woken = true, true
		case <-poll.C:
		case <-l.nudge:
		case units := <-l.results:
			l.collect(units)
		}
	}
}

// step exchanges if it is time to, and returns how long nothing needs doing
// unless something happens.
func (l *loop[T]) step(ctx context.Context) time.Duration {
	l.admit()
	l.collectReady()
	if !l.askAt.IsZero() && !time.Now().Before(l.askAt) {
		l.hungry, l.askAt = true, time.Time{}
	}
	l.divide(0)
	if len(l.aside.units) > 0 && !time.Now().Before(l.aside.at) {
		_ = l.recordAside(ctx) // it is tried again
	}
	if wait := time.Until(l.retryAt); wait > 0 {
		return wait
	}
	if l.failures > 0 && l.split == 0 && len(l.done) > 0 {
		// What failed may have been the claim, or one of the outcomes.
		return l.exchange(ctx, 0)
	}
	if wait := time.Until(l.together); wait > 0 && l.woken && len(l.held) > 0 && len(l.done) < l.opts.Batch {
		return wait
	}
	n, pause := 0, time.Duration(0)
	if l.hungry {
		if n = l.room(); n > 0 {
			n, pause = l.src.Limit(max(n>>l.shrink, 1))
		}
	}
	flush := l.flushes()
	if l.split > 0 && len(l.done) > 0 {
		// Some outcome cannot be recorded: claims go without it, in turns.
		if l.apart = !l.apart; l.apart || n == 0 {
			return l.exchange(ctx, 0)
		}
	}
	switch {
	case n > 0, flush:
		// A flush claims as well: the round trip is paid for.
		if n == 0 && l.room() > 0 && pause == 0 {
			n, _ = l.src.Limit(max(l.room()>>l.shrink, 1))
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

// flushes reports whether it is time to record outcomes.
func (l *loop[T]) flushes() bool {
	return len(l.done) > 0 && (len(l.done) >= l.opts.Batch || len(l.held) == 0 || time.Since(l.doneAt) >= flushDelay)
}

func (l *loop[T]) exchange(ctx context.Context, n int) time.Duration {
	part := l.done
	switch {
	case n > 0 && l.split > 0:
		part = nil
	case n == 0:
		part = l.part()
	}
	if n > 0 && (!l.renewStale(ctx, len(part) > 0) || l.isStopping()) {
		return 0
	}
	if n = l.divide(n); n == 0 && len(part) == 0 {
		return 0
	}
	crash.Point("settling")
	done := l.settling(part)
	// A stop must not cut it short: the server may have claimed already, and
	// what is not known here waits for its lease.
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Deadline)
	started := time.Now()
	claimed, next, err := l.src.Exchange(dctx, done, n)
	cancel()
	if part, err = l.setAside(part, err); err != nil {
		l.exchangeFailed(ctx, err, part, n > 0, len(claimed) > 0)
		l.take(claimed, started)
		return 0
	}
	if len(part) > 0 {
		crash.Point("settled")
	}
	l.exchangeDone()
	l.settled(part)
	l.take(claimed, started)
	l.woken, l.together = false, time.Now().Add(min(time.Since(started)/4, flushDelay))
	if n == 0 {
		l.hungry = l.hungry || l.intake != nil // no claim went with these, and what they have made ready may wait
		return 0
	}
	l.shrink = max(l.shrink-1, 0)
	l.hungry = len(claimed) == n
	l.behind = l.hungry
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

// part is how much of what is done is recorded at once. What is one thing to its
// source is not divided: a process that died in between would leave a half.
func (l *loop[T]) part() []*unit[T] {
	n := max(len(l.done)>>l.split, min(len(l.done), 1))
	if _, ok := l.src.(Grouper[T]); ok {
		for n > 0 && n < len(l.done) && l.done[n].call == l.done[n-1].call {
			n++
		}
	}
	return l.done[:n]
}

// renewStale renews what a claim could take from this loop again, and reports
// whether it could; if not, outcomes go without a claim.
func (l *loop[T]) renewStale(ctx context.Context, outcomes bool) bool {
	l.mu.Lock()
	leased := slices.Collect(maps.Keys(l.leased))
	l.mu.Unlock()
	stale := l.stale(slices.Values(leased))
	if len(stale) == 0 {
		return true
	}
	err := l.extend(context.WithoutCancel(ctx), stale)
	if err == nil {
		return true
	}
	if outcomes {
		l.exchange(ctx, 0)
	} else {
		l.exchangeFailed(ctx, err, nil, true, false)
	}
	return false
}

// settling are the outcomes of units, which are not renewed meanwhile.
func (l *loop[T]) settling(units []*unit[T]) []Done[T] {
	done := make([]Done[T], len(units))
	for i, u := range units {
		done[i] = u.outcome
		u.mu.Lock()
		u.settle = true
		u.mu.Unlock()
	}
	if len(units) > 0 {
		l.awaitRenewal()
	}
	return done
}

// settled lets go of part, the first of l.done.
func (l *loop[T]) settled(part []*unit[T]) {
	l.measure(len(part))
	l.forget(part)
	l.done = append(l.done[:0], l.done[len(part):]...)
	l.doneAt = time.Now()
	if len(part) > 0 {
		l.split = max(l.split-1, 0)
	}
}

func (l *loop[T]) forget(units []*unit[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range units {
		delete(l.leased, u)
	}
}

// exchangeFailed has the outcomes tried without a claim next, then in smaller
// parts with those that failed last, so that no outcome and no claim can hold
// up the others; and smaller claims after that, if it is the claim that may have
// failed: not where it has claimed all the same.
func (l *loop[T]) exchangeFailed(ctx context.Context, err error, part []*unit[T], claims, claimed bool) {
	for _, u := range part {
		u.mu.Lock()
		u.settle = false
		u.mu.Unlock()
	}
	switch {
	case claimed:
	case claims:
		l.shrink = min(l.shrink+1, 14)
	default:
		l.split = min(l.split+1, 14)
		l.done = append(slices.Clone(l.done[len(part):]), part...)
	}
	l.expire()
	if ctx.Err() != nil {
		return
	}
	l.failures++
	l.hungry = true
	l.opts.Logger.Warn("database exchange failed; will try again", "error", err, "failures", l.failures)
	l.retryAt = time.Now().Add(Backoff(l.failures, 50*time.Millisecond, 5*time.Second))
}

// expire lets go of outcomes whose lease is over, where the source does.
func (l *loop[T]) expire() {
	src, ok := l.src.(Expirer[T])
	if !ok {
		return
	}
	l.done = slices.DeleteFunc(l.done, func(u *unit[T]) bool {
		if u.lasts(l.opts.Lease) || !src.Expired(u.item) {
			return false
		}
		l.forget([]*unit[T]{u})
		return true
	})
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

// exchangeDone notes that the database has answered.
func (l *loop[T]) exchangeDone() {
	if l.failures > 0 {
		l.opts.Logger.Info("database exchange succeeds again", "failures", l.failures)
	}
	l.failures, l.retryAt = 0, time.Time{}
}

func (l *loop[T]) take(claimed []T, at time.Time) {
	if len(claimed) > 0 {
		crash.Point("claimed")
	}
	for _, group := range l.units(claimed, at) {
		l.hold(group)
		l.queue <- group
	}
}

// units are claimed, leased from a time on, by the calls that take them.
func (l *loop[T]) units(claimed []T, at time.Time) [][]*unit[T] {
	var groups [][]*unit[T]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, items := range l.groups(claimed) {
		l.calls++
		group := make([]*unit[T], len(items))
		for i, item := range items {
			group[i] = &unit[T]{item: item, renewed: at, call: l.calls}
			l.leased[group[i]] = struct{}{}
		}
		groups = append(groups, group)
	}
	return groups
}

func (l *loop[T]) hold(units []*unit[T]) {
	for _, u := range units {
		l.held[u] = struct{}{}
	}
}

func (l *loop[T]) groups(claimed []T) [][]T {
	if g, ok := l.src.(Grouper[T]); ok && l.opts.Group > 1 {
		return g.Groups(claimed)
	}
	return slices.Collect(slices.Chunk(claimed, l.opts.Group))
}

func (l *loop[T]) collect(units []*unit[T]) {
	l.admit() // among them may be some of these
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
			l.forget([]*unit[T]{u})
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
