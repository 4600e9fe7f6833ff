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

	"github.com/deedhq/deed/internal/pgtest"
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
