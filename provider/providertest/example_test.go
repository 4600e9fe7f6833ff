package providertest_test

import (
	"encoding/json"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/providertest"
)

// server is the service that the adapter talks to, in the tests: it fails as it is
// told to.
type server interface {
	Provider() delivery.Provider
	Accepted() [][]byte
	Calls() int
	Fail(how providertest.Fault, n int)
	Down()
	Up()
}

// An adapter's own tests have these two functions, and a server to test against.
func ExampleRun() {
	_ = func(m *testing.M) { providertest.Main(m) } // TestMain

	var newServer func(t *testing.T) server
	_ = func(t *testing.T) { // TestConformance
		providertest.Run(t, func(t *testing.T) providertest.Harness {
			s := newServer(t)
			return providertest.Harness{
				Provider: s.Provider(), Channel: delivery.SMS, Recipient: "+15550100", Sandbox: "+15550199",
				Payload:  json.RawMessage(`{"text": "canary-7f3a"}`),
				Accepted: s.Accepted, Calls: s.Calls, Fail: s.Fail, Down: s.Down, Up: s.Up,
				Faults: []providertest.Fault{
					providertest.ForGood, providertest.ForNow, providertest.HangBefore, providertest.HangAccepted,
					providertest.ResetBefore, providertest.ResetAccepted,
				},
			}
		}, nil)
	}
}
