// Package stub accepts deliveries and calls nobody: a provider of package delivery, for
// a staging system or for trying out what becomes of what fails.
//
// A delivery that it has accepted is sent, for all that the ledger knows: a stub has no
// place where people wait for what was sent. While deliveries are open that were called
// by a provider of another type, a stub under its name is refused, and the other way
// round.
package stub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
)

// Options configures a Provider.
type Options struct {
	// Fail is which part of the calls is not accepted, from 0 to 1, by what is answered
	// instead: refused, bad_address, opted_out, deferred, not_now, outage or unknown;
	// together at most 1. Default: none.
	Fail map[string]float64
}

// Answers are the names of Options.Fail, in the order in which they are documented.
func Answers() []string {
	return []string{"refused", "bad_address", "opted_out", "deferred", "not_now", "outage", "unknown"}
}

// Provider is a [delivery.Provider].
type Provider struct{ fail map[string]float64 }

// New checks opts.
func New(opts Options) (*Provider, error) {
	var errs []error
	sum := 0.0
	for name, part := range opts.Fail {
		if !slices.Contains(Answers(), name) {
			errs = append(errs, fmt.Errorf("option Fail: no answer is called %q; there are %s", name, strings.Join(Answers(), ", ")))
		}
		if !(part >= 0 && part <= 1) { // NaN, too
			errs = append(errs, fmt.Errorf("option Fail: %s is not from 0 to 1", name))
		}
		sum += part
	}
	if sum > 1+1e-9 {
		errs = append(errs, fmt.Errorf("option Fail: together they are %g, which is over 1", sum))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "stub", Code: deed.Invalid, Err: err}
	}
	return &Provider{opts.Fail}, nil
}

// Capabilities says: every channel, without a key.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "stub", Key: delivery.NoKey, Reports: []delivery.Said{},
		Channels: []delivery.Channel{delivery.Email, delivery.SMS, delivery.Voice, delivery.Social, delivery.Chat, delivery.Webhook},
	}
}

// Render keeps what would be said, and to whom; any payload will do.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	return json.Marshal(struct {
		To      string          `json:"to"`
		Payload json.RawMessage `json:"payload"`
	}{d.Recipient, d.Payload})
}

var errFails = errors.New("stub: it was told to fail")

// Send calls nobody.
func (p *Provider) Send(_ context.Context, r delivery.Reservation) delivery.Outcome {
	at := rand.Float64()
	for _, name := range Answers() {
		if at -= p.fail[name]; at < 0 {
			return outcome(name)
		}
	}
	return delivery.Accepted("stub-" + r.ID())
}

func outcome(name string) delivery.Outcome {
	switch name {
	case "refused":
		return delivery.Refused(errFails)
	case "bad_address":
		return delivery.BadAddress(errFails)
	case "opted_out":
		return delivery.OptedOut(errFails)
	case "deferred":
		return delivery.Deferred(errFails, 0)
	case "not_now":
		return delivery.NotNow(errFails, 0)
	case "outage":
		return delivery.Outage(errFails, 0)
	}
	return delivery.Unknown(errFails)
}
