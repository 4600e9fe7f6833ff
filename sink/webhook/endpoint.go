package webhook

import (
	"sync"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/breaker"
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

// attempt is what became of one request.
type attempt struct {
	err     error // the cause, nil if delivered
	outcome error // what the relay is told unless the breaker knows better
	verdict verdict
	after   time.Duration // how long the endpoint asks to be left alone

	tells   bool   // the answer says which messages were taken
	answer  []byte // and how, up to what was asked for
	tooLong bool   // it was longer
}

// probesPerMessage is how many probes may fail on one message before its failure
// counts as an attempt.
const probesPerMessage = 3

// Breaker configures the circuit breaker of an endpoint. The zero value works.
type Breaker struct {
	// Failures is how many failures of the endpoint in a row open it. Default 5.
	Failures int
	// Pause is how long it stays open at first. Default 1s.
	Pause time.Duration
	// MaxPause bounds the pause, which doubles with every probe that fails.
	// Default 30s, or Pause if that is longer.
	MaxPause time.Duration
}

// endpoint is what is known of how an endpoint does: the breaker that stops
// requests to one that fails, and whom it failed.
type endpoint struct {
	*breaker.Breaker
	opts Breaker

	mu     sync.Mutex      // guards the fields below; taken before the breaker's own
	erred  int             // attempts that it answered with an error and that opened it or left it open
	spared map[deed.ID]int // probes that failed on a message and counted no attempt
}

func newEndpoint(opts Breaker) *endpoint {
	return &endpoint{
		opts: opts,
		// A request has a timeout, so a probe ends by itself.
		Breaker: breaker.New(breaker.Options{Failures: opts.Failures, Pause: opts.Pause, MaxPause: opts.MaxPause}),
	}
}

// report records what an attempt has shown. outage says that the attempt must
// not be counted, and pause how long the endpoint is left alone.
func (e *endpoint) report(round int, id deed.ID, a attempt) (outage bool, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch a.verdict {
	case neutral:
		e.Nothing(round)
		return false, 0
	case answered:
		if e.Up(round) == breaker.Closed {
			e.erred, e.spared = 0, nil
		}
		return false, 0
	}
	effect, pause := e.Down(round, a.err, func(usual time.Duration) time.Duration { return e.pause(a, usual) })
	if effect != breaker.StillDown || a.verdict == erred {
		return false, 0 // the back-off of what erred makes way for other messages
	}
	return a.verdict == unreachable || e.spare(id), pause
}

// pause is how long the endpoint is left alone. One that answers is asked again
// soon, with another message; if it errs with a thousand, as seldom as one is
// tried again that does not answer. e.mu is held.
func (e *endpoint) pause(a attempt, usual time.Duration) time.Duration {
	if a.verdict != erred {
		return max(usual, a.after)
	}
	e.erred++
	return max(e.opts.Pause/50, e.opts.Pause/1000*time.Duration(e.erred))
}

// spare reports whether message id may fail as a probe without an attempt
// being counted. Without a limit, a message that makes the endpoint fail would
// be the oldest, hence the next probe, for ever. e.mu is held.
func (e *endpoint) spare(id deed.ID) bool {
	if e.spared == nil {
		e.spared = map[deed.ID]int{}
	}
	if e.spared[id]++; e.spared[id] < probesPerMessage {
		return true
	}
	delete(e.spared, id)
	return false
}
