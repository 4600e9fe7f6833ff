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
	erred                      // it answered with an error of its own, which may be the message's doing
	failed                     // it gave no answer, or none but that it is not there
	unreachable                // it does not, and no message came near it
)

// probesPerMessage is how many probes may fail on one message before its failure
// counts as an attempt.
const probesPerMessage = 3

// breaker stops requests to an endpoint that fails. It measures pauses by the
// process's monotonic clock, which decides only when this process tries again.
type breaker struct {
	opts Breaker

	mu         sync.Mutex // guards the fields below
	generation int        // of the state; a report about an older one is ignored
	open       bool
	failures   int // in a row, while closed
	erred      int // probes that were answered with an error, since it opened
	pause      time.Duration
	until      time.Time
	cause      error
	probing    bool
	spared     map[deed.ID]int // probes that failed on a message and counted no attempt
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
		return pass{}, min(b.pause, b.opts.Pause), b.cause
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
			b.open, b.probing, b.pause, b.cause, b.erred, b.spared = false, false, 0, nil, 0, nil
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
	if a.verdict == erred {
		return false, 0 // its back-off makes way for other messages
	}
	return a.verdict == unreachable || b.spare(id), b.pause
}

// trip opens the breaker, or keeps it open for twice as long as before. An
// endpoint that answers is asked again soon, with another message; if it errs
// with a thousand, as seldom as one is tried again that does not answer.
func (b *breaker) trip(a attempt) {
	b.pause = max(2*b.pause, b.opts.Pause, a.after)
	if a.verdict == erred {
		b.erred++
		b.pause = max(b.opts.Pause/50, b.opts.Pause/1000*time.Duration(b.erred))
	}
	b.pause = min(b.pause, b.opts.MaxPause)
	b.until = time.Now().Add(b.pause)
	b.open, b.probing, b.failures, b.cause = true, false, 0, a.err
	b.generation++
}

// spare reports whether message id may fail as a probe without an attempt
// being counted. Without a limit, a message that makes the endpoint fail would
// be the oldest, hence the next probe, for ever.
func (b *breaker) spare(id deed.ID) bool {
	if b.spared == nil {
		b.spared = map[deed.ID]int{}
	}
	if b.spared[id]++; b.spared[id] < probesPerMessage {
		return true
	}
	delete(b.spared, id)
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
