package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/twilio"
)

// settleDelay is when what is in doubt may be looked at, in place of the minute that a
// service may need.
const settleDelay = 200 * time.Millisecond

// provider is that of a channel, whose service is at address.
func provider(channel, address string) (delivery.Provider, error) {
	endpoint := "http://" + address
	switch channel {
	case "email":
		return resend.New(resend.Options{APIKey: "re_x", Endpoint: endpoint})
	case "voice":
		p, err := twilio.New(twilio.Options{AccountSID: "AC00000000000000000000000000000000", AuthToken: "token", From: "+15005550006", LookUpCalls: true, Endpoint: endpoint})
		return calls{p}, err
	case "social":
		return &accounts{endpoint: endpoint, of: map[string]*mastodon.Provider{}}, nil
	}
	return nil, fmt.Errorf("VICTIM_CHANNEL %q is unknown", channel)
}

type calls struct{ *twilio.Provider }

func (p calls) Capabilities() delivery.Capabilities { return soon(p.Provider) }

func soon(p delivery.Provider) delivery.Capabilities {
	caps := p.Capabilities()
	caps.SettleDelay, caps.Limits = settleDelay, nil
	return caps
}

// accounts posts as each of an instance's accounts, whose tokens are their names.
type accounts struct {
	endpoint string
	mu       sync.Mutex
	of       map[string]*mastodon.Provider // guarded by mu
}

func (a *accounts) as(account string) (*mastodon.Provider, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.of[account]
	var err error
	if p == nil {
		p, err = mastodon.New(mastodon.Options{Token: account, Account: account, Endpoint: a.endpoint})
		a.of[account] = p
	}
	return p, err
}

func (a *accounts) Capabilities() delivery.Capabilities {
	caps := soon(&mastodon.Provider{})
	caps.Account = "" // all of them
	return caps
}

func (a *accounts) Render(d delivery.Draft) ([]byte, error) {
	p, err := a.as(d.Recipient)
	if err != nil {
		return nil, err
	}
	return p.Render(d)
}

func (a *accounts) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	p, err := a.as(r.Recipient())
	if err != nil {
		return delivery.Refused(err)
	}
	defer p.Close() // one connection an account is too many
	return p.Send(ctx, r)
}
