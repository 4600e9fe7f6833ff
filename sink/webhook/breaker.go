package webhook

import (
	"sync"
	"time"

	"github.com/deedhq/deed"
)

// verdict is what an attempt says about the endpoint.
type verdict int

const (
	neutral     verdict = iota // nothing
	answered                   // it works, whatever it said about the message
	failed                     // it does not, or not with this message
	unreachable                // it does not, and no message came near it
)

// probesPerMessage is how many probes running may fail on one message before
// its failure counts as an attempt.
const probesPerMessage = 3

// breaker stops requests to an endpoint that fails. It measures pauses by the
// process's monotonic clock, which decides only when this process tries again.
type breaker struct {
	opts Breaker

	mu         sync.Mutex // guards the fields below
	generation int        // of the state; a report about an older one is ignored
	open       bool
	failures   int // in a row, while closed
	pause      time.Duration
	until      time.Time
	cause      error
	probing    bool
	probed     deed.ID // the message of the last probe that failed
	probes     int     // that have failed on it running
}

// pass is the leave to make one attempt.
type pass struct {
	generation int
	probe      bool
}

func newBreaker(opts Breaker) *breaker { return &breaker{opts: opts} }

// admit grants a pass, or says why not and for how long.
func (b *breaker) admit() (p pass, pause time.Duration, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return pass{generation: b.generation}, 0, nil
	}
	if wait := time.Until(b.until); wait > 0 {
		return pass{}, wait, b.cause
	}
	if b.probing {
		return pass{}, b.opts.Pause, b.cause
	}
	b.probing = true
	return pass{generation: b.generation, probe: true}, 0, nil
}

// report records what an attempt has shown. outage says that the attempt must
// not be counted, and pause how long the endpoint is left alone.
func (b *breaker) report(p pass, id deed.ID, a attempt) (outage bool, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.generation != b.generation {
		return false, 0
	}
	switch {
	case a.verdict == neutral:
		b.probing = b.probing && !p.probe
		return false, 0
	case a.verdict == answered:
		b.failures = 0
		if b.open {
			b.open, b.probing, b.pause, b.cause, b.probes = false, false, 0, nil, 0
			b.generation++
		}
		return false, 0
	case !b.open:
		if b.failures++; b.failures >= b.opts.Failures {
			b.trip(a)
		}
		return false, 0
	}
	b.trip(a)
	return a.verdict == unreachable || b.spare(id), b.pause
}

// trip opens the breaker, or keeps it open for twice as long as before.
func (b *breaker) trip(a attempt) {
	b.pause = min(max(2*b.pause, b.opts.Pause, a.after), b.opts.MaxPause)
	b.until = time.Now().Add(b.pause)
	b.open, b.probing, b.failures, b.cause = true, false, 0, a.err
	b.generation++
}

// spare reports whether message id may fail as a probe without an attempt
// being counted. Without a limit, a message that makes the endpoint fail would
// be the oldest, hence the next probe, for ever.
func (b *breaker) spare(id deed.ID) bool {
	if id != b.probed {
		b.probed, b.probes = id, 0
	}
	if b.probes++; b.probes < probesPerMessage {
		return true
	}
	b.probes = 0
	return false
}

func (b *breaker) state() string {
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
