// Package sinktest checks that a sink keeps what deed promises.
//
// [Run] drains real messages from a real database through the sink and
// compares what arrived at its destination with what was published. A sink's
// own tests call it:
//
//	func TestMain(m *testing.M) { sinktest.Main(m) }
//
//	func TestConformance(t *testing.T) { sinktest.Run(t, newHarness) }
package sinktest

import (
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// Features says which of a harness's optional parts are there.
type Features struct {
	Batch   bool // the sink is a [deed.BatchSink]
	Headers bool // [Arrival.Headers] is filled in
	Down    bool // Down and Up
	Slow    bool // Slow
	Refuse  bool // Refuse
	InTurn  bool // a refusal for good is known before the key's next message is sent
}

// A Harness is a sink and the destination that it delivers to.
type Harness struct {
	Sink     deed.Sink
	Features Features

	// Arrived returns what the destination has accepted so far, oldest first.
	// It is called at any time, from any goroutine.
	Arrived func() []Arrival

	// Down makes the destination impossible to connect to, and breaks the
	// connections that exist; Up undoes it.
	Down, Up func()

	// Slow makes the destination take d over each message before it accepts it.
	Slow func(d time.Duration)

	// TooLarge is the size of a payload that the sink itself refuses. Default: it
	// refuses none.
	TooLarge int

	// Refuse makes the destination ask judge before it accepts a message. judge
	// may be called by several goroutines at once.
	Refuse func(judge func(payload []byte) Verdict)
}

// Arrival is a message as the destination has it.
type Arrival struct {
	ID      string            // the message id
	Topic   string            // all of these with the sink's encoding undone
	Key     string            // "" if the sink carries none
	Type    string            // "" if the sink carries none
	Payload []byte            // byte for byte
	Headers map[string]string // the message's own, by lower-case name
}

// Verdict is a destination's answer to a message.
type Verdict int

const (
	// Accept takes the message.
	Accept Verdict = iota
	// ForNow refuses this message, but it may be tried again. It is about the
	// message, not about the destination as a whole.
	ForNow
	// ForGood refuses this message for ever. A sink that can tell ends it at
	// once; for others it is as ForNow.
	ForGood
)

// Main runs a package's tests with a database server for [Run]. Call it from
// TestMain.
func Main(m *testing.M) { pgtest.Main(m) }

// Run checks a sink. newHarness is called once for each test, and leaves
// nothing behind when that test ends.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	sample := newHarness(t)
	features := sample.Features
	run := func(name string, wanted bool, test func(*testing.T, *fixture)) {
		if wanted {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, setup(t, newHarness(t)))
			})
		}
	}
	run("EveryMessageArrivesOnce", true, everyMessageArrivesOnce)
	run("SeveralRelaysShare", true, severalRelaysShare)
	run("HeadersAndIdentity", true, headersAndIdentity)
	run("Batch", features.Batch, batch)
	run("EachMessageHasItsOwnOutcome", features.Refuse, ownOutcomes)
	run("PoisonHoldsUpNobody", features.Refuse, poison)
	run("OutageCountsNoAttempt", features.Down, outage)
	run("OutageInTheMiddle", features.Down, outageInTheMiddle)
	run("SlowDestinationKeepsTheClaim", features.Slow, slow)
	run("StopInTheMiddle", true, stopInTheMiddle)
	run("EndedContext", true, endedContext)
	run("KeyWaitsForWhatTheSinkRefuses", sample.TooLarge > 0, keyWaitsForTooLarge)
	run("KeyWaitsForWhatIsRefused", features.Refuse && features.InTurn, keyWaitsForRefused)
}
