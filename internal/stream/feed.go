package stream

import (
	"context"
	"slices"
	"sync"
)

// windowStep is one step from a window to a later one.
type windowStep struct {
	from, to window
	slots    []int32       // those that have something new, sorted; nil: any may
	late     lateRows      // unknown, if the server did not know the window from
	rows     map[int]*span // by subscription, if it is known: all that is new
}

// span is all that a step has in some slots, for one subscription.
type span struct {
	slots
	entries []entry
}

// within returns what of it is in the slots, or false if it is not known. The
// entries are copies: two lanes of one subscription, one before and one after a
// change of owner, may read the same step.
func (s windowStep) within(sub int, in slots) (list []*entry, ok bool) {
	rows := s.rows[sub]
	if rows == nil || rows.from > in.from || rows.upto < in.upto {
		return nil, false
	}
	for _, e := range rows.entries {
		if in.has(e.slot) {
			list = append(list, &e)
		}
	}
	return list, true
}

// concerns reports whether any of the slots may have something new.
func (s windowStep) concerns(in slots) bool {
	if s.slots == nil {
		return true
	}
	i, _ := slices.BinarySearch(s.slots, in.from)
	return i < len(s.slots) && s.slots[i] <= in.upto
}

// Feed hands the windows that the process's watcher finds to its lanes. The
// watcher publishes, lanes of all subscriptions wait for what is next.
type Feed struct {
	mu      sync.Mutex
	last    window        // guarded by mu: the newest one
	steps   []windowStep  // guarded by mu: consecutive up to last, but for the first after a break
	changed chan struct{} // guarded by mu: closed at the next step
	breaks  int           // guarded by mu: how often the latest window was found gone
}

// keptSteps is how many steps a lane may lie behind and still be told that
// they do not concern it; then it looks for itself.
const keptSteps = 1024

// keptRows is of how many steps the rows are kept.
const keptRows = 8

// NewFeed returns a feed that knows of no window.
func NewFeed() *Feed { return &Feed{changed: make(chan struct{})} }

func (f *Feed) current() window {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// broken counts the failovers that took windows back: who keeps one in memory
// from before the last is to read its durable position again.
func (f *Feed) broken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.breaks
}

func (f *Feed) publish(s windowStep) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.late.low == nil {
		// From a window that the server does not know, or another cluster's: after
		// a failover nothing may go over those that it took back.
		f.steps = f.steps[:0]
		if s.from.h != "" {
			f.breaks++
		}
	}
	if len(f.steps) >= keptSteps {
		f.steps = append(f.steps[:0], f.steps[keptSteps/2:]...)
	}
	f.last = s.to
	f.steps = append(f.steps, s)
	if old := len(f.steps) - 1 - keptRows; old >= 0 {
		f.steps[old].rows = nil
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// next returns what a lane that has read up to at has to read next: the step to
// the newest window, or the next one whose rows are there. seen is the last window
// up to which there is known to be nothing for its slots. It waits until there is
// something, ctx ends or interrupt says that the lane has other business, or
// broken is no longer breaks; then ok is false.
func (f *Feed) next(ctx context.Context, at window, breaks, sub int, in slots, interrupt <-chan struct{}) (step windowStep, seen window, ok bool) {
	seen = at
	for {
		f.mu.Lock()
		changed := f.changed
		if f.breaks != breaks {
			f.mu.Unlock()
			return windowStep{}, seen, false
		}
		step, seen, ok = f.look(seen, sub, in)
		f.mu.Unlock()
		if ok {
			return step, seen, true
		}
		select {
		case <-ctx.Done():
			return windowStep{}, seen, false
		case <-interrupt:
			return windowStep{}, seen, false
		case <-changed:
		}
	}
}

// look finds the next step that concerns the slots; f.mu is held. It goes over
// those that do not, one after the other, which is only allowed from a window that
// a kept step begins with: by number and transaction id.
func (f *Feed) look(at window, sub int, in slots) (step windowStep, seen window, ok bool) {
	i := slices.IndexFunc(f.steps, func(s windowStep) bool { return s.to.n > at.n })
	if i < 0 {
		return windowStep{}, at, false
	}
	for _, s := range f.steps[i:] {
		switch {
		case s.from == at && !s.concerns(in):
			at = s.to
		case s.from == at && (s.to == f.last || s.rows[sub] != nil):
			return s, at, true
		default:
			return windowStep{from: at, to: f.last}, at, true
		}
	}
	return windowStep{}, at, false
}
