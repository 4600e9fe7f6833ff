// Package providertest checks that a provider's adapter keeps what package
// delivery promises of it.
//
// [Run] reserves real deliveries in a real database, has a real ledger attempt
// them through the adapter against a server that fails as it is told to, and
// compares what the server accepted with what the ledger says. An adapter's own
// tests call it:
//
//	func TestMain(m *testing.M) { providertest.Main(m) }
//
//	func TestConformance(t *testing.T) { providertest.Run(t, newHarness, nil) }
package providertest

import (
	"encoding/json"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A Harness is an adapter and the server that it talks to, both of one test.
type Harness struct {
	Provider delivery.Provider

	// Channel, Recipient and Payload are of a delivery that the server accepts.
	// The payload has the text "canary-7f3a" in it, which no error may repeat; over
	// [delivery.Email] it is a [delivery.EmailPayload].
	Channel   delivery.Channel
	Recipient string
	Payload   json.RawMessage

	// Sandbox is another recipient that the server accepts, and Recipients whom
	// it accepted each delivery for, as Accepted.
	Sandbox    string
	Recipients func() []string

	// RefusedRecipient is one whom the server refuses for good, for [RunBatches].
	RefusedRecipient string

	// Accepted returns the request that the server accepted each time, oldest
	// first, as far as it can be compared with the stored one: a prefix, a
	// suffix or all of it. A repeat that the server recognised is not in it.
	Accepted func() [][]byte

	// Calls is how many times the server was asked to take something, since
	// the last Fail.
	Calls func() int

	// Fail makes the server fail in this way the first n times that it is asked
	// to take something; n below 0: every time.
	Fail func(how Fault, n int)

	// Faults are the ways in which this server can fail, each of [Faults] that
	// its protocol has. Every provider has [ForGood], [ForNow], [HangBefore],
	// [HangAccepted], [ResetBefore] and [ResetAccepted].
	Faults []Fault

	// Reused is how many requests came over a connection that had had one, as
	// [Gate.Reused] says. Nil of a protocol whose sessions take many messages and
	// tell whether they still live; of any other, and of [delivery.NoKey], it must stay 0.
	Reused func() int

	// Down makes the server impossible to connect to, and Up undoes it.
	Down, Up func()

	// Secrets are the values that no error may repeat.
	Secrets []string
}

// Fault is a way in which a server fails.
type Fault string

// The faults. Those with "Accepted" take the delivery first.
const (
	ForGood       Fault = "ForGood"       // no, and never
	ForNow        Fault = "ForNow"        // 429 without a header, 451, …
	ForNowAfter   Fault = "ForNowAfter"   // 429 with Retry-After: 1
	HangBefore    Fault = "HangBefore"    // no answer; nothing accepted
	HangAccepted  Fault = "HangAccepted"  // no answer
	ResetBefore   Fault = "ResetBefore"   // the connection is reset; nothing accepted
	ResetAccepted Fault = "ResetAccepted" // the connection is reset before the answer
	SlowAccepted  Fault = "SlowAccepted"  // an answer that does not end
	Redirect      Fault = "Redirect"      // 307 to another place
	Garbage       Fault = "Garbage"       // 200 with something that is no answer
	ServerError   Fault = "ServerError"   // 500
	ShortAccepted Fault = "ShortAccepted" // 200, and not all that the answer should say
	CutAfterOK    Fault = "CutAfterOK"    // yes, and then the connection breaks
	Unauthorized  Fault = "Unauthorized"  // the credentials are refused
	BadAddress    Fault = "BadAddress"    // no, since nobody is there
	OptedOut      Fault = "OptedOut"      // no, since they want nothing from this sender
)

// expectation is what must come of a delivery to a server that fails once.
type expectation int

const (
	fails     expectation = iota // failed, nothing accepted
	retried                      // tried again, accepted once
	doubtful                     // in doubt; accepted at most once
	delivered                    // as if nothing had happened
	stopped                      // failed, and its address is suppressed for everything
	skipped                      // skipped, nothing accepted
)

var expected = map[Fault]expectation{
	ForGood: fails, Redirect: fails,
	ForNow: retried, ForNowAfter: retried, Unauthorized: retried,
	HangBefore: doubtful, HangAccepted: doubtful, ResetBefore: doubtful, ResetAccepted: doubtful,
	SlowAccepted: doubtful, ServerError: doubtful, Garbage: doubtful, ShortAccepted: doubtful,
	CutAfterOK: delivered, BadAddress: stopped, OptedOut: skipped,
}

// Main runs a package's tests with a database server for [Run]. Call it from
// TestMain.
func Main(m *testing.M) { pgtest.Main(m) }

// Run checks an adapter. newHarness is called once for each test, and leaves
// nothing behind when that test ends. tell, if not nil, may say otherwise what
// a fault means for this provider: [Accepts] for one that is no fault to it.
func Run(t *testing.T, newHarness func(t *testing.T) Harness, tell map[Fault]Meaning) {
	t.Helper()
	run := func(name string, test func(*testing.T, *fixture)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, newHarness(t)))
		})
	}
	run("EveryDeliveryOnce", everyDeliveryOnce)
	run("WithoutAReservation", withoutAReservation)
	run("OutageCutsNothingShort", outage)
	run("PayloadThatIsNone", payloadThatIsNone)
	run("NoRetryOfTheLibrary", noRetryOfTheLibrary)
	run("Email/Content", emailContent)
	run("Sandbox/WhateverWasReserved", sandbox)
	run("Sandbox/OffAgain", sandboxOff)
	run("Sandbox/StoredByAnOlderVersion", sandboxStored)
	for _, fault := range newHarness(t).Faults {
		want := expected[fault]
		switch tell[fault] {
		case Accepts:
			want = delivered
		case MayHaveAccepted:
			want = doubtful
		}
		run(string(fault), func(t *testing.T, f *fixture) { once(t, f, fault, want, delivery.AtMostOnce) })
		if want == doubtful {
			run(string(fault)+"/AtLeastOnce", func(t *testing.T, f *fixture) { once(t, f, fault, want, delivery.AtLeastOnce) })
		}
	}
}

// Meaning is what a fault means for a provider that differs from the others.
type Meaning int

const (
	// Accepts: the provider says yes all the same.
	Accepts Meaning = iota + 1
	// MayHaveAccepted: nobody can tell.
	MayHaveAccepted
)
