// Package sendgrid sends e-mail through Twilio SendGrid's API v3: a provider of package
// delivery.
//
// SendGrid knows no repeat: a call whose outcome is unknown is settled by an event, by the
// account's activity with [Options].Activity, or by the delivery's guarantee. Each e-mail
// carries the delivery's id as the custom argument deed_id, which most events have.
//
//	202                                   accepted; X-Message-Id names it
//	any other 2xx                         unknown
//	408, 5xx, no complete answer          unknown
//	429                                   outage: too many calls; X-RateLimit-Reset is obeyed
//	403 of the field from                 refused for good: that sender is not verified
//	401, any other 403                    outage: mend the key, or what it may do
//	no connection                         outage
//	413: over 30 MB; 3xx, any other 4xx   refused for good
//
// Sources: sendgrid-oai (tsg_mail_v3, tsg_webhooks_v3, tsg_email_activity_v3), and SendGrid's
// documentation of limits, X-Message-Id, events and queries of the activity.
package sendgrid

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
	"github.com/deedhq/deed/internal/plaintext"
)

// Options configures a Provider.
type Options struct {
	// APIKey authenticates: "SG.…", with the permission mail.send. Required.
	APIKey string
	// EventKey is the public key of the event webhook, as its settings show it: base64.
	// Default: nothing that is said is believed.
	EventKey string
	// Activity has e-mails in doubt looked up in the Email Activity API, five minutes after
	// the call. The account needs additional activity history, and the key the permission
	// for it: without them nothing is learnt. SendGrid takes six such requests a minute, and
	// one that is found takes two. Default: nothing is looked up.
	Activity bool
	// Endpoint is the API's base; that of the region EU is https://api.eu.sendgrid.com.
	// Default https://api.sendgrid.com.
	Endpoint string
	// From is the sender of e-mails that name none. Default: none.
	From string
	// FromAllowed are the senders that payloads may name: addresses, @domains, or
	// * for all. Default: those of From's domain; all, if there is no From.
	FromAllowed []string
	// HeadersAllowed are the headers that payloads may set beside the usual ones;
	// see [delivery.EmailRules].
	HeadersAllowed []string
	// Account names the account, see [delivery.Capabilities]. Default: a short hash of
	// APIKey; to replace the key, name the account as before.
	Account string
}

// Provider is a [delivery.Provider], a [delivery.Finder], a [delivery.Checker] and a
// [delivery.EventReader].
type Provider struct {
	opts      Options
	rules     delivery.EmailRules
	eventKey  *ecdsa.PublicKey // nil: none
	base      *url.URL
	transport *http.Transport
}

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://api.sendgrid.com"))
	errs := []error{err}
	errs = append(errs, adapter.CheckSecret("APIKey", opts.APIKey))
	p := &Provider{opts: opts, base: base, transport: httpcall.NewSingleUse()}
	if opts.EventKey != "" {
		if p.eventKey, err = publicKey(opts.EventKey); err != nil {
			errs = append(errs, err)
		}
	}
	p.rules = delivery.EmailRules{From: opts.From, FromAllowed: opts.FromAllowed, HeadersAllowed: opts.HeadersAllowed}
	errs = append(errs, p.rules.Check())
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "sendgrid", Code: deed.Invalid, Err: err}
	}
	if p.opts.Account == "" {
		p.opts.Account = "key-" + adapter.Account("sendgrid", opts.APIKey)
	}
	return p, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: e-mail, without a key.
func (p *Provider) Capabilities() delivery.Capabilities {
	c := delivery.Capabilities{
		Kind: "sendgrid", Account: p.opts.Account, Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey,
		Reports: adapter.Reports(p.eventKey != nil, delivery.SaidAccepted, delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidSoftBounced, delivery.SaidDropped,
			delivery.SaidComplained, delivery.SaidUnsubscribed, delivery.SaidOpened, delivery.SaidClicked),
	}
	if p.opts.Activity {
		c.SettleDelay = settleDelay
	}
	return c
}

// email is the body of POST /v3/mail/send.
type email struct {
	To      []personalization `json:"personalizations"`
	From    address           `json:"from"`
	ReplyTo *address          `json:"reply_to,omitempty"`
	Replies []address         `json:"reply_to_list,omitempty"` // in its place, of several
	Subject string            `json:"subject"`
	Content []content         `json:"content"` // text before HTML
	Files   []file            `json:"attachments,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Args    map[string]string `json:"custom_args"`
}

type personalization struct {
	To []address `json:"to"`
	CC []address `json:"cc,omitempty"`
}

type address struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

type content struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

type file struct {
	Content     []byte `json:"content"`
	Type        string `json:"type"`
	Name        string `json:"filename"`
	Disposition string `json:"disposition"`
	ContentID   string `json:"content_id,omitempty"`
}

// Render makes the body of POST /v3/mail/send.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	e, err := delivery.ReadEmail(d, p.rules)
	if err != nil {
		return nil, err
	}
	m := email{To: []personalization{{To: []address{{Email: d.Recipient}}}}, Subject: e.Subject, Headers: e.Headers, Args: map[string]string{"deed_id": d.ID}}
	if m.From, err = parse(e.From, "from"); err != nil {
		return nil, err
	}
	for _, to := range e.CC {
		m.To[0].CC = append(m.To[0].CC, address{Email: to})
	}
	for _, a := range e.ReplyToList() {
		m.Replies = append(m.Replies, address{a.Address, a.Name})
	}
	if len(m.Replies) == 1 {
		m.ReplyTo, m.Replies = &m.Replies[0], nil
	}
	if text := cmp.Or(e.Text, plaintext.Of(e.HTML)); text != "" {
		m.Content = append(m.Content, content{"text/plain", text})
	}
	if e.HTML != "" {
		m.Content = append(m.Content, content{"text/html", e.HTML})
	}
	for _, a := range e.Attachments {
		f := file{Content: a.Content, Type: a.Type, Name: a.Name, Disposition: "attachment", ContentID: a.ContentID}
		if a.Inline {
			f.Disposition = "inline"
		}
		m.Files = append(m.Files, f)
	}
	if d.SandboxFor != "" {
		m.Headers = maps.Clone(m.Headers)
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[adapter.SandboxHeader] = d.SandboxFor
	}
	return json.Marshal(m)
}

// parse divides an address from its name.
func parse(text, field string) (address, error) {
	a, err := mail.ParseAddress(text)
	if err != nil {
		return address{}, fmt.Errorf("the payload's %s is no address", field)
	}
	return address{a.Address, a.Name}, nil
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored email
	if err := json.Unmarshal(body, &stored); err != nil || len(stored.To) != 1 || len(stored.To[0].To) != 1 || !strings.EqualFold(stored.To[0].To[0].Email, r.Recipient()) {
		return delivery.Refused(fmt.Errorf("sendgrid: %w", delivery.ErrOtherRecipient))
	}
	if err := adapter.CheckStored("sendgrid", p.rules, maps.Keys(stored.Headers)); err != nil {
		return delivery.Refused(err)
	}
	h := adapter.Bearer(p.opts.APIKey)
	h.Set("Content-Type", "application/json")
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath("v3/mail/send"), h, body)
	return judge(a, time.Now()).WithCode(a.Code())
}

// judge says what came of a call. What SendGrid writes of errors may name the recipient:
// only the field is kept that one is about.
func judge(a httpcall.Answer, now time.Time) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("sendgrid", a)
	}
	about, err := field(a.Body), fmt.Errorf("sendgrid: status %d", a.Status)
	if about != "" {
		err = fmt.Errorf("sendgrid: status %d, of the field %s", a.Status, about)
	}
	switch {
	case a.Status == http.StatusAccepted:
		return delivery.Accepted(a.Header.Get("X-Message-Id"))
	case a.Status < 300, a.Status == http.StatusRequestTimeout, a.Status >= 500:
		return delivery.Unknown(err)
	case a.Status == http.StatusTooManyRequests:
		return delivery.Outage(err, wait(a.Header, now))
	case a.Status == http.StatusForbidden && (about == "from" || strings.HasPrefix(about, "from.")):
		// Its sender is not verified: no other e-mail's doing, and no wait mends it.
		return delivery.Refused(err)
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		return delivery.Outage(err, 0)
	}
	return delivery.Refused(err)
}

// field names the field that a refusal is about; "": it names none.
func field(body []byte) string {
	var said struct {
		Errors []struct {
			Field string `json:"field"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &said) != nil || len(said.Errors) == 0 || strings.Trim(said.Errors[0].Field, "abcdefghijklmnopqrstuvwxyz0123456789._") != "" || len(said.Errors[0].Field) > 100 {
		return ""
	}
	return said.Errors[0].Field
}

// wait is until when SendGrid asks to be left alone.
func wait(h http.Header, now time.Time) time.Duration {
	if after, ok := header.RetryAfter(h, now); ok {
		return after
	}
	seconds, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil {
		return 0
	}
	return max(0, time.Unix(seconds, 0).Sub(now))
}

// Check asks what the key may do, and with Activity for a part of that.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	a := httpcall.Get(ctx, p.transport, p.base.JoinPath("v3/scopes"), adapter.Bearer(p.opts.APIKey))
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var said struct {
		Scopes []string `json:"scopes"`
	}
	key := delivery.Check{What: "API key", Info: "it may send"}
	_ = json.Unmarshal(a.Body, &said)
	for _, scope := range said.Scopes {
		key.OK = key.OK || scope == "mail.send"
	}
	switch {
	case a.Status != http.StatusOK:
		key.OK, key.Info = false, fmt.Sprintf("status %d; make a key in SendGrid's settings, in the region of the endpoint", a.Status)
	case !key.OK:
		key.Info = "it may not send; give it the permission Mail Send"
	}
	checks := []delivery.Check{connected, key}
	if key.OK && p.opts.Activity {
		checks = append(checks, p.checkActivity(ctx))
	}
	return checks
}
