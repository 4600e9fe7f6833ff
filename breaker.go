package deed

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/breaker"
	"github.com/deedhq/deed/tenant"
)

const (
	breakerPause    = time.Second
	breakerMaxPause = 30 * time.Second
)

// newBreaker makes what stops a subscription's claims while its sink says that
// it is down, so that an outage costs no attempts and no writes.
func newBreaker() *breaker.Breaker {
	return breaker.New(breaker.Options{Failures: 1, Pause: breakerPause, MaxPause: breakerMaxPause, Probe: breakerMaxPause})
}

// pauseAsked is the pause that an outage asks for, in place of the breaker's own;
// nil if it asks for none.
func pauseAsked(outage error) func(time.Duration) time.Duration {
	asked, ok := RetryAfter(outage)
	if !ok || asked <= 0 {
		return nil
	}
	return func(time.Duration) time.Duration { return asked }
}

// probedWithin is how long after a pause a sink is taken to be down still: as long as
// a probe may take, and a look for something to probe with.
const probedWithin = 2 * breakerMaxPause

// paused reports since when the subscription has paused and why; nil: it does not, or
// no probe has shown for a while that the sink is down, as where there is nothing to
// probe it with.
func (d *destination) paused() (since time.Time, cause error) {
	since, until, cause := d.breaker.Paused()
	if time.Since(until) >= probedWithin {
		return time.Time{}, nil
	}
	return since, cause
}

// mostFailing bounds how many tenants a probe may pass over.
const mostFailing = 1000

// failingTenants are those whose messages have failed since one was delivered:
// while the sink is probed others come first, since theirs may be what it fails
// with.
type failingTenants struct {
	mu  sync.Mutex
	ids map[tenant.ID]bool // guarded by mu
}

func (f *failingTenants) add(ids []tenant.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ids == nil {
		f.ids = map[tenant.ID]bool{}
	}
	for _, id := range ids {
		if len(f.ids) < mostFailing {
			f.ids[id] = true
		}
	}
}

// hasOthers reports whether there are some, and id is none of them.
func (f *failingTenants) hasOthers(id tenant.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ids) > 0 && !f.ids[id]
}

func (f *failingTenants) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = nil
}

func (f *failingTenants) list() []tenant.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.ids))
}
