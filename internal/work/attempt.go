package work

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/crash"
)

// renewer extends everything in hand, however busy the driver is, until ctx
// ends: also what is delivered and not recorded yet. What is lost has its
// context cancelled, unless it shares the context with others that are not.
func (l *loop[T]) renewer(ctx context.Context) {
	tick := time.NewTicker(max(l.opts.Lease/3, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			l.opts.Logger.Warn("lease renewal failed; will try again", "error", err)
		}
	}
}

func (l *loop[T]) renew(ctx context.Context) error {
	l.renewing.RLock() // from before it looks who is being settled
	defer l.renewing.RUnlock()
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.leased))
	l.mu.Unlock()
	units := slices.DeleteFunc(all, func(u *unit[T]) bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.settle || u.lost
	})
	if len(units) == 0 {
		return nil
	}
	return l.extend(ctx, units)
}

// awaitRenewal waits until no renewal is under way that began before some units
// were marked as being settled: in the database the two could wait for each
// other. Not for long, as it may have gone silent.
func (l *loop[T]) awaitRenewal() {
	for range 1000 {
		if l.renewing.TryLock() {
			l.renewing.Unlock()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// askAgain is when what seems to be lost is asked for once more. A source passes over a row that is locked, and cannot say then that a lease
// which is over is still this worker's; who has locked it is often another statement of this worker, which renews as well.
const askAgain = 50 * time.Millisecond

func (l *loop[T]) extend(ctx context.Context, units []*unit[T]) error {
	items := make([]T, len(units))
	for i, u := range units {
		items[i] = u.item
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Deadline)
	defer cancel()
	started := time.Now()
	seems, passed, err := l.ask(ctx, items)
	if err != nil {
		return err
	}
	lost, again, err := l.sure(ctx, seems)
	if src, ok := l.src.(Loser[T]); ok && len(lost) > 0 {
		src.Lost(lost)
	}
	gone, renewed := make(map[any]bool, len(lost)), make(map[any]bool, len(items))
	for _, item := range items {
		renewed[item] = true
	}
	for _, item := range seems {
		renewed[item] = err == nil // else it is neither
	}
	for _, item := range append(passed, again...) {
		renewed[item] = false
	}
	for _, item := range lost {
		gone[item] = true
	}
	for _, u := range units {
		u.mu.Lock()
		if gone[any(u.item)] {
			u.lost = true
		} else if renewed[any(u.item)] {
			u.renewed = started
		}
		u.mu.Unlock()
	}
	for _, u := range units {
		if gone[any(u.item)] {
			u.cancelIfAllLost()
		}
	}
	return err
}

// Unrenewed is the error of an Extend that has passed over Items: somebody has them locked. They are this worker's for as
// long as their leases last, and nothing of them is begun that is not known to be.
type Unrenewed[T comparable] struct{ Items []T }

func (u *Unrenewed[T]) Error() string {
	return fmt.Sprintf("%d leases were not renewed: somebody has what is leased locked", len(u.Items))
}

func (l *loop[T]) ask(ctx context.Context, items []T) (lost, passed []T, err error) {
	lost, err = l.src.Extend(ctx, items)
	if u, ok := errors.AsType[*Unrenewed[T]](err); ok {
		return lost, u.Items, nil
	}
	return lost, nil, err
}

// sure are those of seems that are lost when it is asked for them once more. Where that cannot be done, as its time is over or the loop
// ends, nothing is known of them: nobody is told that they are lost, who may find then that they are not.
func (l *loop[T]) sure(ctx context.Context, seems []T) (lost, passed []T, err error) {
	if len(seems) == 0 {
		return nil, nil, nil
	}
	if !Sleep(ctx, askAgain) {
		return nil, nil, context.Cause(ctx)
	}
	return l.ask(ctx, seems)
}

// cancelIfAllLost ends the attempt under way if nothing in it is ours.
func (u *unit[T]) cancelIfAllLost() {
	u.mu.Lock()
	cancel, group := u.cancel, u.group
	u.mu.Unlock()
	for _, g := range group {
		g.mu.Lock()
		lost := g.lost
		g.mu.Unlock()
		if !lost {
			return
		}
	}
	if cancel != nil {
		cancel(ErrLeaseLost)
	}
}

// ErrGoexit is the outcome of an attempt that ended its goroutine.
var ErrGoexit = errors.New("the attempt called runtime.Goexit, as t.FailNow does")

// runner attempts groups until the queue is closed. An attempt that ends the
// goroutine has failed; another runner takes its place.
func (l *loop[T]) runner(ctx context.Context, runners *sync.WaitGroup) {
	var group []*unit[T]
	defer func() {
		if group == nil {
			return
		}
		for _, u := range group {
			u.outcome = Done[T]{Item: u.item, Err: ErrGoexit}
		}
		runners.Go(func() { l.runner(ctx, runners) })
		l.results <- group
	}()
	for group = range l.queue {
		l.results <- l.attempt(ctx, group)
		group = nil
	}
	group = nil
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
	outcomes := l.do(context.WithValue(ctx, holderKey{}, &holder[T]{l, ready}), items)
	crash.Point("attempted")
	stopped := errors.Is(context.Cause(ctx), ErrStopping)
	for i, u := range ready {
		var err error
		if outcomes != nil {
			err = outcomes[i]
		}
		u.outcome = Done[T]{Item: u.item, Err: err, Released: err != nil && stopped}
		u.mu.Lock()
		u.cancel, u.group = nil, nil
		u.mu.Unlock()
	}
	return group
}

type holderKey struct{}

// holder is what an attempt knows of its items' leases.
type holder[T comparable] struct {
	loop  *loop[T]
	ready []*unit[T]
}

// Held says which of items, which the caller's Do was given with ctx, are still
// this worker's: those that have been renewed too long ago, as after the process
// was frozen or while the database is away, only once they could be renewed; and
// none once the loop is to stop. Do begins nothing with the others.
func Held[T comparable](ctx context.Context, items []T) []bool {
	held := make([]bool, len(items))
	h, ok := ctx.Value(holderKey{}).(*holder[T])
	if !ok {
		return held
	}
	at := make(map[T]*unit[T], len(h.ready))
	for _, u := range h.ready {
		at[u.item] = u
	}
	units := make([]*unit[T], 0, len(items))
	for _, item := range items {
		if u := at[item]; u != nil {
			units = append(units, u)
		}
	}
	h.loop.renewWhatIsStale(ctx, units)
	now := time.Now()
	for i, item := range items {
		if u := at[item]; u != nil && ctx.Err() == nil && !h.loop.isStopping() {
			u.mu.Lock()
			held[i] = !u.lost && !h.loop.isStale(u, now)
			u.mu.Unlock()
		}
	}
	return held
}

// Ours is as [Held], of one item, but that a stop lets an attempt that is under way go on while its lease lasts.
func Ours[T comparable](ctx context.Context, item T) bool {
	l, u := unitOf(ctx, item)
	if u == nil {
		return false
	}
	l.renewWhatIsStale(ctx, []*unit[T]{u})
	return u.lasts(l.opts.Lease)
}

// Lasts reports whether item, which the caller's Do was given with ctx, was claimed or renewed less than a lease ago, by this
// process's clocks. Other than [Held] and [Ours] it asks nobody.
func Lasts[T comparable](ctx context.Context, item T) bool {
	l, u := unitOf(ctx, item)
	return u != nil && u.lasts(l.opts.Lease)
}

// unitOf is item's, which the caller's Do was given with ctx; nil if it was not.
func unitOf[T comparable](ctx context.Context, item T) (*loop[T], *unit[T]) {
	h, ok := ctx.Value(holderKey{}).(*holder[T])
	if !ok {
		return nil, nil
	}
	for _, u := range h.ready {
		if u.item == item {
			return h.loop, u
		}
	}
	return nil, nil
}

func (u *unit[T]) lasts(lease time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.lost && u.age(time.Now()) <= lease
}

// age is how long ago u was claimed or renewed, by both clocks: the monotonic one stands still while the machine sleeps. Only with mu held.
func (u *unit[T]) age(now time.Time) time.Duration {
	return max(now.Sub(u.renewed), now.Round(0).Sub(u.renewed.Round(0)))
}

// stale are those of units that were claimed or renewed too long ago, as after
// the process was frozen: only the database knows whether they are still ours.
func (l *loop[T]) stale(units iter.Seq[*unit[T]]) []*unit[T] {
	var stale []*unit[T]
	now := time.Now()
	for u := range units {
		u.mu.Lock()
		if !u.lost && l.isStale(u, now) {
			stale = append(stale, u)
		}
		u.mu.Unlock()
	}
	return stale
}

// isStale: only with u.mu held.
func (l *loop[T]) isStale(u *unit[T], now time.Time) bool { return u.age(now) > l.opts.Lease*2/3 }

// begin marks the units of group as running and returns those that may be
// attempted, of the stale ones those that could be renewed; none after a stop,
// which then gives them back.
func (l *loop[T]) begin(ctx context.Context, cancel context.CancelCauseFunc, group []*unit[T]) []*unit[T] {
	l.renewWhatIsStale(ctx, group)
	isStopping, now := l.isStopping(), time.Now()
	ready := make([]*unit[T], 0, len(group))
	for _, u := range group {
		u.mu.Lock()
		if u.lost || isStopping || ctx.Err() != nil || l.isStale(u, now) {
			u.outcome = Done[T]{Item: u.item, Released: true}
		} else {
			u.cancel = cancel
			ready = append(ready, u)
		}
		u.mu.Unlock()
	}
	for _, u := range ready {
		u.mu.Lock()
		u.group = ready
		u.mu.Unlock()
	}
	return ready
}

// renewWhatIsStale returns when all of units have been renewed of late, or are
// known to be lost, or were passed over, so that they are stale still, or ctx has ended or the loop is to stop.
func (l *loop[T]) renewWhatIsStale(ctx context.Context, units []*unit[T]) {
	stale := l.stale(slices.Values(units))
	for n := 1; len(stale) > 0 && !l.isStopping(); n++ {
		if err := l.extend(ctx, stale); err == nil {
			return
		}
		if !Sleep(ctx, Backoff(n, 50*time.Millisecond, 5*time.Second)) {
			return
		}
	}
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
