package deed

import (
	"context"
	"slices"
	"sync"
)

// window is a point in the log, as deed.windows has it: a number, and the
// transaction id that tells it from another that was given the same number
// after a failover.
type window struct {
	n int64
	h string
}

// windowStep is one step from a window to a later one.
type windowStep struct {
	from, to window
	slots    []int32 // those that have something new, sorted; nil: any may
	low      *int64  // as deed.window_late says
	late     []string
	rows     map[int]*span // by subscription, if it is known: all that is new
}

// span is all that a step has in some slots, for one subscription.
type span struct {
	from, upto int32
	entries    []entry
}

// within returns what of it is in the slots, or false if it is not known.
func (s windowStep) within(sub int, from, upto int32) (list []*entry, ok bool) {
	rows := s.rows[sub]
	if rows == nil || rows.from > from || rows.upto < upto {
		return nil, false
	}
	for _, e := range rows.entries {
		if e.slot >= from && e.slot <= upto {
			list = append(list, &e)
		}
	}
	return list, true
}

// concerns reports whether any of the slots may have something new.
func (s windowStep) concerns(from, upto int32) bool {
	if s.slots == nil {
		return true
	}
	i, _ := slices.BinarySearch(s.slots, from)
	return i < len(s.slots) && s.slots[i] <= upto
}

// windowFeed hands the windows that the process's watcher finds to its lanes.
type windowFeed struct {
	mu      sync.Mutex
	last    window        // guarded by mu
	steps   []windowStep  // guarded by mu: consecutive, the latest last
	changed chan struct{} // guarded by mu: closed at the next step
	breaks  int           // guarded by mu: how often the latest window was found gone
}

// keptSteps is how many steps a lane may lie behind and still be told that
// they do not concern it; then it looks for itself.
const keptSteps = 1024

// keptRows is of how many steps the rows are kept.
const keptRows = 8

func newWindowFeed() *windowFeed { return &windowFeed{changed: make(chan struct{})} }

func (f *windowFeed) current() window {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// broken counts the failovers that took windows back: who keeps one in memory
// from before the last is to read its durable position again.
func (f *windowFeed) broken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.breaks
}

func (f *windowFeed) publish(s windowStep) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.low == nil {
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
func (f *windowFeed) next(ctx context.Context, at window, breaks, sub int, from, upto int32, interrupt <-chan struct{}) (step windowStep, seen window, ok bool) {
	seen = at
	for {
		f.mu.Lock()
		changed := f.changed
		if f.breaks != breaks {
			f.mu.Unlock()
			return windowStep{}, seen, false
		}
		step, seen, ok = f.look(seen, sub, from, upto)
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

// look finds the next step that concerns the slots; f.mu is held.
func (f *windowFeed) look(at window, sub int, from, upto int32) (step windowStep, seen window, ok bool) {
	i := slices.IndexFunc(f.steps, func(s windowStep) bool { return s.to.n > at.n })
	if i < 0 {
		return windowStep{}, at, false
	}
	for _, s := range f.steps[i:] {
		switch {
		case s.from == at && !s.concerns(from, upto):
			at = s.to
		case s.from == at && (s.to == f.last || s.rows[sub] != nil):
			return s, at, true
		default:
			return windowStep{from: at, to: f.last}, at, true
		}
	}
	return windowStep{}, at, false
}
