// Package resend sends e-mail through Resend's HTTP API: a provider of package
// delivery.
//
// Every request carries the delivery's key as Idempotency-Key, which Resend
// remembers for 24 hours: a call whose outcome is unknown is repeated, byte for
// byte, inside that window, and never after it.
//
//	200 with an id                          accepted
//	200 without one, or not JSON            unknown: repeated under the key
//	408, 5xx, no complete answer            unknown: repeated under the key
//	429: too many calls                     outage; Retry-After is obeyed
//	429 daily_, monthly_quota_exceeded      rests until the next day, or month
//	401, 403 about the API key              outage: mend the key
//	no connection                           outage
//	409 concurrent_idempotent_requests      not now
//	any other 409: another request has      unknown: something was sent under the
//	the key                                 key, as before a dump was restored
//	3xx and any other 4xx                   refused for good
//
// With Options.Batch one call takes several e-mails, under a key of its own, in
// Resend's permissive mode: what is refused is then called alone, which says why.
//
//	200 with an id or an error for each     accepted, or refused
//	200 with fewer or more                  unknown, all of them
//	409: the key is in use                  unknown, all of them
//	anything else                           as above, for all of them
//
// Sources: resend-openapi 1.5.0; the documentation of idempotency keys, errors
// and rate limits.
package resend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
	"github.com/deedhq/deed/internal/plaintext"
	"github.com/deedhq/deed/internal/signing"
)

// Window is for how long Resend remembers an idempotency key.
const Window = 24 * time.Hour

// Options configures a Provider.
type Options struct {
	// APIKey authenticates: "re_…". Required.
	APIKey string
	// Endpoint is the API's base. Default https://api.resend.com.
	Endpoint string
	// From is the sender of e-mails that name none. Default: none.
	From string
	// FromAllowed are the senders that payloads may name: addresses, @domains, or
	// * for all. Default: those of From's domain; all, if there is no From.
	FromAllowed []string
	// HeadersAllowed are the headers that payloads may set beside the usual ones;
	// see [delivery.EmailRules].
	HeadersAllowed []string
	// EventSecret is the signing secret of the webhook by which Resend says what became
	// of e-mails: "whsec_…". Default: none is believed.
	EventSecret string
	// Batch is how many e-mails one call may take, at most 100; see
	// [delivery.Batcher]. Default 1.
	Batch int
	// Account names the account, see [delivery.Capabilities]. Default: a short
	// hash of the API key; to replace the key, name the account as before.
	Account string
}

// Provider is a [delivery.Provider], a [delivery.Checker] and a [delivery.EventReader].
type Provider struct {
	opts      Options
	rules     delivery.EmailRules
	base      *url.URL
	transport *http.Transport
}

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	opts.Endpoint = cmp.Or(opts.Endpoint, "https://api.resend.com")
	var errs []error
	base, err := adapter.Endpoint(opts.Endpoint)
	errs = append(errs, err)
	errs = append(errs, adapter.CheckSecret("APIKey", opts.APIKey))
	if opts.EventSecret != "" {
		if err := signing.Check(opts.EventSecret); err != nil {
			errs = append(errs, fmt.Errorf("option EventSecret: %w", err))
		}
	}
	if opts.Batch < 0 || opts.Batch > MostBatch {
		errs = append(errs, fmt.Errorf("option Batch %d is not from 1 to %d", opts.Batch, MostBatch))
	}
	rules := delivery.EmailRules{From: opts.From, FromAllowed: opts.FromAllowed, HeadersAllowed: opts.HeadersAllowed}
	errs = append(errs, rules.Check())
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "resend", Code: deed.Invalid, Err: err}
	}
	if opts.Account == "" {
		opts.Account = "key-" + adapter.Account("resend", opts.APIKey)
	}
	return &Provider{opts: opts, rules: rules, base: base, transport: httpcall.NewTransport()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: e-mail, with a key for 24 hours.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "resend", Account: p.opts.Account, Channels: []delivery.Channel{delivery.Email}, Key: delivery.HasKey, KeyWindow: Window, Batch: p.opts.Batch,
		Reports: adapter.Reports(p.opts.EventSecret != "", delivery.SaidAccepted, delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidSoftBounced, delivery.SaidDropped,
			delivery.SaidComplained, delivery.SaidOpened, delivery.SaidClicked),
	}
}

// email is the body of POST /emails.
type email struct {
	From    string            `json:"from"`
	To      []string          `json:"to"`
	CC      []string          `json:"cc,omitempty"`
	Subject string            `json:"subject"`
	ReplyTo any               `json:"reply_to,omitempty"` // a text, or several
	Text    string            `json:"text,omitempty"`
	HTML    string            `json:"html,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Files   []file            `json:"attachments,omitempty"`
	Tags    []tag             `json:"tags"`
}

type file struct {
	Name      string `json:"filename"`
	Type      string `json:"content_type"`
	Content   []byte `json:"content"`
	ContentID string `json:"content_id,omitempty"` // of what is shown inline
}

type tag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Render makes the body of POST /emails. The tag deed_id is in every later
// event about the e-mail.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	e, err := delivery.ReadEmail(d, p.rules)
	if err != nil {
		return nil, err
	}
	if d.SandboxFor != "" {
		e.Headers = maps.Clone(e.Headers)
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[adapter.SandboxHeader] = d.SandboxFor
	}
	m := email{
		From: e.From, To: []string{d.Recipient}, CC: e.CC, Subject: e.Subject,
		Text: cmp.Or(e.Text, plaintext.Of(e.HTML)), HTML: e.HTML, Headers: e.Headers, Tags: []tag{{"deed_id", d.ID}},
	}
	if list := e.ReplyToList(); len(list) > 1 {
		var all []string
		for _, a := range list {
			all = append(all, a.String())
		}
		m.ReplyTo = all
	} else if len(list) == 1 {
		m.ReplyTo = e.ReplyTo
	}
	for _, a := range e.Attachments {
		m.Files = append(m.Files, file{a.Name, a.Type, a.Content, a.ContentID})
	}
	return json.Marshal(m)
}

// Send posts the request under the delivery's key.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := p.request(r)
	if err != nil {
		return delivery.Refused(err)
	}
	h := adapter.Bearer(p.opts.APIKey)
	h.Set("Content-Type", "application/json")
	h.Set("Idempotency-Key", r.Key())
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath("emails"), h, body)
	return p.judge(a).WithCode(a.Code())
}

// request is the stored one, if it may be sent.
func (p *Provider) request(r delivery.Reservation) ([]byte, error) {
	body, err := r.Request()
	if err != nil {
		return nil, err
	}
	var stored email
	if err := json.Unmarshal(body, &stored); err != nil || len(stored.To) != 1 || !strings.EqualFold(stored.To[0], r.Recipient()) {
		return nil, fmt.Errorf("resend: %w", delivery.ErrOtherRecipient)
	}
	if err := adapter.CheckStored("resend", p.rules, maps.Keys(stored.Headers)); err != nil {
		return nil, err
	}
	return body, nil
}

// problem is what Resend says of a request that it refuses.
type problem struct {
	Name string `json:"name"`
}

func (p *Provider) judge(a httpcall.Answer) delivery.Outcome {
	if a.Err == nil && a.Status >= 200 && a.Status < 300 {
		var accepted struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(a.Body, &accepted); err != nil || accepted.ID == "" {
			return delivery.Unknown(fmt.Errorf("resend: status %d without an id", a.Status))
		}
		return delivery.Accepted(accepted.ID)
	}
	return p.judgeProblem(a)
}

// judgeProblem says what an answer means that is no 2xx, or none.
func (p *Provider) judgeProblem(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("resend", a)
	}
	// The name is from a fixed list; a message may repeat the request.
	var said problem
	_ = json.Unmarshal(a.Body, &said)
	err := fmt.Errorf("resend: status %d %s", a.Status, httpcall.Line([]byte(said.Name)))
	after, _ := header.RetryAfter(a.Header, time.Now())
	switch {
	case said.Name == "daily_quota_exceeded":
		return delivery.Quota(err, delivery.NextDay())
	case said.Name == "monthly_quota_exceeded":
		return delivery.Quota(err, delivery.NextMonth())
	case a.Status == http.StatusTooManyRequests:
		return delivery.Outage(err, after)
	case a.Status == http.StatusConflict && said.Name == "concurrent_idempotent_requests":
		return delivery.NotNow(err, 0)
	case a.Status == http.StatusConflict:
		// Something was sent under the key, with other bytes: as before the ledger was restored.
		return delivery.KeyInUse(err)
	case a.Status == http.StatusUnauthorized, said.Name == "invalid_api_key", said.Name == "restricted_api_key":
		// It is about the key and not about this e-mail.
		return delivery.Outage(err, 0)
	case a.Status == http.StatusRequestTimeout, a.Status >= 500, a.Status < 200:
		return delivery.Unknown(err)
	}
	return delivery.Refused(err)
}

// Check asks for the account's domains, which any full API key may.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	a := httpcall.Get(ctx, p.transport, p.base.JoinPath("domains"), adapter.Bearer(p.opts.APIKey))
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var said problem
	_ = json.Unmarshal(a.Body, &said)
	key := delivery.Check{What: "API key", OK: a.Status == http.StatusOK || said.Name == "restricted_api_key", Info: "it is accepted"}
	if said.Name == "restricted_api_key" {
		key.Info = "it may only send, so nothing more can be looked at"
	}
	if !key.OK {
		key.Info = fmt.Sprintf("status %d %s; make a key in the Resend dashboard", a.Status, httpcall.Line([]byte(said.Name)))
	}
	return []delivery.Check{connected, key}
}
