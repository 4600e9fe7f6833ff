package twilio

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/mail"
	"net/url"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/httpcall"
)

// resource is where something is made and listed.
type resource struct {
	path  string // below the account's
	since string // the parameter of a list that says from which day on
}

var (
	messages = resource{"Messages.json", "DateSent>"}
	calls    = resource{"Calls.json", "StartTime>"}
)

// resourceOf says where a stored request belongs.
func resourceOf(stored url.Values) resource {
	if stored.Has("Twiml") || stored.Has("Url") {
		return calls
	}
	return messages
}

const (
	around    = 2 * time.Minute // by which a call and what was made by it may lie apart, by two clocks
	pageSize  = 5               // of long texts as many as an answer has room for
	mostPages = 20
)

// Find lists what was sent to the recipient since the day of the call, and takes the one
// that has all that the request has; see the package for what that proves. Of several, or
// of too many to look through, it takes none.
func (p *Provider) Find(ctx context.Context, r delivery.Reservation) (delivery.Finding, error) {
	body, err := r.Request()
	if err != nil {
		return delivery.Finding{}, err
	}
	stored, err := url.ParseQuery(string(body))
	at := r.CalledAt()
	if err != nil || at.IsZero() || stored.Get("To") != r.Recipient() {
		return delivery.Finding{}, nil
	}
	of := resourceOf(stored)
	if of == calls && !p.opts.LookUpCalls {
		return delivery.Finding{}, nil
	}
	query := url.Values{"To": {r.Recipient()}, "PageSize": {fmt.Sprint(pageSize)}, of.since: {at.Add(-around).UTC().Format(time.DateOnly)}}
	if from := stored.Get("From"); from != "" {
		query.Set("From", from)
	}
	target := p.base.JoinPath(of.path)
	target.RawQuery = query.Encode()
	match := ""
	for range mostPages {
		found, err := p.list(ctx, target)
		if err != nil {
			return delivery.Finding{}, err
		}
		for _, one := range append(found.Messages, found.Calls...) {
			if !one.is(stored, at) || one.SID == match {
				continue
			}
			if match != "" {
				return delivery.Finding{}, nil
			}
			match = one.SID
		}
		if found.Next == "" {
			return delivery.Finding{Found: match != "", MessageID: match, Alike: true}, nil
		}
		// Of the next page's address only what is asked for: it never leads elsewhere.
		next, err := url.Parse(found.Next)
		if err != nil {
			return delivery.Finding{}, fmt.Errorf("twilio: %s: the next page has no address", of.path)
		}
		target.RawQuery = next.RawQuery
	}
	return delivery.Finding{}, nil
}

// page is a part of a list.
type page struct {
	Messages []made `json:"messages"`
	Calls    []made `json:"calls"`
	Next     string `json:"next_page_uri"`
}

// made is a message or a call, as a list shows it.
type made struct {
	SID       string `json:"sid"`
	Direction string `json:"direction"`
	To        string `json:"to"`
	From      string `json:"from"`
	Service   string `json:"messaging_service_sid"`
	Body      string `json:"body"`
	CreatedAt string `json:"date_created"`
}

// is reports whether a request, made about then, may have made it. A call has no text,
// and neither has its request.
func (m made) is(stored url.Values, at time.Time) bool {
	created, err := mail.ParseDate(m.CreatedAt)
	if err != nil || created.Before(at.Add(-around)) || created.After(at.Add(around)) {
		return false
	}
	if service := stored.Get("MessagingServiceSid"); service != "" && m.Service != service {
		return false
	}
	if from := stored.Get("From"); from != "" && m.From != from {
		return false
	}
	return anySID.MatchString(m.SID) && m.Direction == "outbound-api" && m.To == stored.Get("To") && m.Body == stored.Get("Body")
}

func (p *Provider) list(ctx context.Context, target *url.URL) (l page, err error) {
	a := httpcall.Get(ctx, p.transport, target, p.headers())
	switch {
	case a.Err != nil:
		return l, fmt.Errorf("twilio: list: %w", a.Err)
	case a.Status != http.StatusOK:
		var s said
		_ = json.Unmarshal(a.Body, &s)
		return l, fmt.Errorf("list: %w", problem(a.Status, s.Code))
	case json.Unmarshal(a.Body, &l) != nil:
		return l, fmt.Errorf("twilio: list: what is said cannot be read")
	}
	return l, nil
}
