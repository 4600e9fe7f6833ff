package deed

import (
	"sync"
	"time"
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
		return 0, b.pause
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

// report records the outcome of an attempt of that round and says whether the
// state changed. Attempts that were under way when it did no longer count.
func (b *breaker) report(round int, outcome error) (opened, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return false, false
	}
	if !IsUnavailable(outcome) {
		if closed = b.open; closed {
			b.round++
		}
		b.open, b.probe, b.pause = false, time.Time{}, 0
		return false, closed
	}
	opened = !b.open
	b.open, b.probe, b.cause = true, time.Time{}, outcome
	b.round++
	b.pause = min(max(2*b.pause, breakerPause), breakerMaxPause)
	wait := b.pause
	if asked, ok := RetryAfter(outcome); ok && asked > 0 {
		wait = min(asked, breakerMaxPause)
	}
	b.until = time.Now().Add(wait)
	return opened, false
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
