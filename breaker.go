package deed

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed/tenant"
)

const (
	breakerPause    = time.Second
	breakerMaxPause = 30 * time.Second
)

// breaker stops a subscription's claims while its sink says that it is down,
// so that an outage costs no attempts and no writes. It looks at a process's
// monotonic clock, which decides only when this process probes again.
type breaker struct {
	mu    sync.Mutex
	open  bool
	pause time.Duration
	until time.Time
	probe time.Time // when a probe was let through; zero: none is under way
	cause error
	round int // of attempts whose outcome counts; moves on with every change

	failing map[tenant.ID]bool // whose messages have failed since one was delivered
}

// limit says how many of n may be attempted now, and if none when to ask again.
func (b *breaker) limit(n int) (int, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return n, 0
	}
	wait := time.Until(b.until)
	if wait > 0 {
		return 0, wait
	}
	if b.probing() {
		return 0, min(b.pause, breakerPause)
	}
	return min(n, 1), 0
}

// admit reports whether an attempt may be made now, and the outage's cause if
// not; its outcome is reported with the round. While half-open it admits one
// attempt at a time.
func (b *breaker) admit() (round int, ok bool, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return b.round, true, nil
	}
	if b.probing() || time.Now().Before(b.until) {
		return 0, false, b.cause
	}
	b.probe = time.Now()
	b.round++
	return b.round, true, nil
}

// report records the outcome of an attempt of that round at messages of those
// tenants, and says whether the state changed. Attempts that were under way when
// it did no longer count. A probe that fails for its message's sake leaves it
// half-open: the next one may be told that the sink is still down.
func (b *breaker) report(round int, outcome error, of ...tenant.ID) (opened, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return false, false
	}
	b.probe = time.Time{}
	switch {
	case outcome == nil:
		if closed = b.open; closed {
			b.round++
		}
		b.open, b.pause, b.failing = false, 0, nil
		return false, closed
	case !IsUnavailable(outcome):
		b.fail(of)
		return false, false
	}
	opened = !b.open
	b.open, b.cause = true, outcome
	b.round++
	b.pause = min(max(2*b.pause, breakerPause), breakerMaxPause)
	if asked, ok := RetryAfter(outcome); ok && asked > 0 {
		b.pause = min(asked, breakerMaxPause)
	}
	b.until = time.Now().Add(b.pause)
	return opened, false
}

// mostFailing bounds how many tenants a probe may pass over.
const mostFailing = 1000

// fail notes tenants whose messages have failed; b.mu is held.
func (b *breaker) fail(of []tenant.ID) {
	if b.failing == nil {
		b.failing = map[tenant.ID]bool{}
	}
	for _, id := range of {
		if len(b.failing) < mostFailing {
			b.failing[id] = true
		}
	}
}

// passOver returns the tenants that the next probe leaves out if others have
// messages: theirs have failed, and may be what made the sink fail.
func (b *breaker) passOver() []tenant.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return nil
	}
	return slices.Collect(maps.Keys(b.failing))
}

// forgive begins anew with them: there are no others.
func (b *breaker) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing = nil
}

// probing reports whether a probe is under way. One that hangs for very long
// is given up for another: it may be the message, not the sink.
func (b *breaker) probing() bool {
	return !b.probe.IsZero() && time.Since(b.probe) < breakerMaxPause
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}
