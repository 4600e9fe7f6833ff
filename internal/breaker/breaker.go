// Package breaker stops attempts at a destination that is down, and finds out
// by one probe at a time whether it still is.
//
// It is closed while attempts are made, open during a pause, and half-open from
// the pause's end until a probe has shown something. Whom to probe with, and
// what a failed probe costs it, its users decide: a probe fails for the
// destination's sake or for its own.
package breaker

import (
	"sync"
	"time"
)

// Options tune a Breaker.
type Options struct {
	Failures int           // in a row, that open it
	Pause    time.Duration // how long it is open at first
	MaxPause time.Duration // each pause is twice the one before, up to this

	// Probe is how long a probe may take until it is given up for another; 0: it
	// ends by itself.
	Probe time.Duration
}

// A Breaker may be used by several goroutines at once. It measures pauses by the
// process's monotonic clock, which decides only when this process tries again.
type Breaker struct {
	opts Options

	mu       sync.Mutex // guards the fields below
	round    int        // of attempts whose outcome counts; moves on with every change and every probe
	open     bool
	failures int // in a row, while closed
	pause    time.Duration
	until    time.Time
	since    time.Time // when it was opened
	probe    time.Time // when a probe was admitted; zero: none is under way
	cause    error
}

// Effect is what the outcome of an attempt has done.
type Effect int

const (
	Stale     Effect = iota // nothing: the attempt was admitted before the last change
	Counted                 // nothing yet
	Opened                  // attempts stop for a pause
	StillDown               // a probe has failed, and the next pause begins
	Closed                  // a probe was answered, and attempts go on
)

// besideProbe is how often who waits for a probe's end asks [Breaker.Limit], which
// costs little.
const besideProbe = 10 * time.Millisecond

// New makes a closed Breaker.
func New(opts Options) *Breaker { return &Breaker{opts: opts} }

// Limit says how many of n may be attempted now, and if none when to ask again.
func (b *Breaker) Limit(n int) (int, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return n, 0
	}
	if wait := time.Until(b.until); wait > 0 {
		return 0, wait
	}
	if b.wait() > 0 { // beside a probe, which shows something any moment
		return 0, besideProbe
	}
	return min(n, 1), 0
}

// Admit lets an attempt be made, whose outcome is then reported with the round;
// or says by its cause why not, and when to ask again. Once the pause is over it
// admits one at a time.
func (b *Breaker) Admit() (round int, wait time.Duration, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return b.round, 0, nil
	}
	if wait := b.wait(); wait > 0 {
		return 0, wait, b.cause
	}
	b.probe = time.Now()
	b.round++
	return b.round, 0, nil
}

// wait is how long it stays open, or beside a probe until it is asked again;
// b.mu is held.
func (b *Breaker) wait() time.Duration {
	if wait := time.Until(b.until); wait > 0 {
		return wait
	}
	if b.probe.IsZero() || b.opts.Probe > 0 && time.Since(b.probe) >= b.opts.Probe {
		return 0
	}
	return max(min(b.pause, b.opts.Pause), time.Millisecond)
}

// Up reports an attempt of that round that shows that the destination works.
func (b *Breaker) Up(round int) Effect {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return Stale
	}
	b.failures = 0
	if !b.open {
		return Counted
	}
	b.open, b.probe, b.pause, b.cause = false, time.Time{}, 0, nil
	b.round++
	return Closed
}

// Nothing reports an attempt of that round that shows nothing of the
// destination: after a probe that did not the next one may follow at once.
func (b *Breaker) Nothing(round int) Effect {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return Stale
	}
	b.probe = time.Time{}
	return Counted
}

// Down reports an attempt of that round that shows, by an error, that the
// destination is down, and returns the pause that begins. A pause that is not
// nil changes it from what it would be; it is called under the breaker's lock.
func (b *Breaker) Down(round int, cause error, pause func(time.Duration) time.Duration) (Effect, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return Stale, 0
	}
	effect := StillDown
	if !b.open {
		if b.failures++; b.failures < b.opts.Failures {
			return Counted, 0
		}
		effect, b.since = Opened, time.Now()
	}
	b.pause = max(2*b.pause, b.opts.Pause)
	if pause != nil {
		b.pause = pause(b.pause)
	}
	b.pause = min(b.pause, b.opts.MaxPause)
	b.until = time.Now().Add(b.pause)
	b.open, b.probe, b.failures, b.cause = true, time.Time{}, 0, cause
	b.round++
	return effect, b.pause
}

// Paused reports since when it has not been closed, when it was, or will be, to be
// probed, and the last error that shows that the destination is down; nil: it is
// closed.
func (b *Breaker) Paused() (since, until time.Time, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.until, b.cause
}

// State is "closed", "open", or "half-open".
func (b *Breaker) State() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return "closed"
	case time.Until(b.until) > 0:
		return "open"
	default:
		return "half-open"
	}
}
