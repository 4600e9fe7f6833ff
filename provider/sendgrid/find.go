package sendgrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/httpcall"
)

const (
	// settleDelay is how long the activity may take to show an e-mail; an event is sooner.
	settleDelay = 5 * time.Minute
	mostShown   = "10" // of one e-mail: one for each recipient
)

// Find searches the activity for the delivery's custom argument, which messages have there as
// a unique argument, and takes the message to its recipient whose details have the argument,
// however the search was understood. Where the account or the key may not search there is
// nothing to be learnt.
func (p *Provider) Find(ctx context.Context, r delivery.Reservation) (delivery.Finding, error) {
	if !p.opts.Activity {
		return delivery.Finding{}, nil
	}
	search := url.Values{"query": {fmt.Sprintf(`(unique_args['deed_id']="%s")`, r.ID())}, "limit": {mostShown}}
	var list struct {
		Messages []struct {
			ID string `json:"msg_id"`
			To string `json:"to_email"`
		} `json:"messages"`
	}
	if shown, err := p.activity(ctx, p.base.JoinPath("v3/messages"), search, &list); !shown || err != nil {
		return delivery.Finding{}, err
	}
	for _, one := range list.Messages {
		if one.ID == "" || !strings.EqualFold(one.To, r.Recipient()) {
			continue
		}
		var message struct {
			Args string `json:"unique_args"` // a text, with a hash in it
		}
		if shown, err := p.activity(ctx, p.base.JoinPath("v3/messages", url.PathEscape(one.ID)), nil, &message); !shown || err != nil {
			return delivery.Finding{}, err
		}
		if strings.Contains(message.Args, r.ID()) {
			return delivery.Finding{Found: true, MessageID: messageID(one.ID)}, nil
		}
	}
	return delivery.Finding{}, nil
}

// activity asks for a part of the activity. It is not shown to an account without that
// history, to a key without the permission, or if the search is refused.
func (p *Provider) activity(ctx context.Context, target *url.URL, query url.Values, into any) (shown bool, err error) {
	target.RawQuery = query.Encode()
	a := httpcall.Get(ctx, p.transport, target, adapter.Bearer(p.opts.APIKey))
	switch {
	case a.Err != nil:
		return false, fmt.Errorf("sendgrid: activity: %w", a.Err)
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusRequestTimeout, a.Status >= 500:
		return false, fmt.Errorf("sendgrid: activity: status %d", a.Status)
	case a.Status != http.StatusOK:
		return false, nil
	case json.Unmarshal(a.Body, into) != nil:
		return false, errors.New("sendgrid: activity: what is said cannot be read")
	}
	return true, nil
}

// messageID is what the answer's X-Message-Id had: events and the activity have more behind a dot.
func messageID(id string) string {
	id, _, _ = strings.Cut(id, ".")
	return id
}

// checkActivity asks whether the activity may be searched.
func (p *Provider) checkActivity(ctx context.Context) delivery.Check {
	var any json.RawMessage
	shown, err := p.activity(ctx, p.base.JoinPath("v3/messages"), url.Values{"query": {`status="processed"`}, "limit": {"1"}}, &any)
	c := delivery.Check{What: "email activity", OK: shown, Info: "it may be searched"}
	switch {
	case err != nil:
		c.Info = err.Error()
	case !shown:
		c.Info = "it may not be searched; buy additional activity history and give the key the permission Email Activity, or leave out activity"
	}
	return c
}
