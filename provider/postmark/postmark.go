// Package postmark sends e-mail through Postmark's API: a provider of package delivery.
//
// Postmark knows no repeat: a call whose outcome is unknown is settled by the delivery's
// guarantee, or by an event. Each e-mail carries the delivery's id as the metadata
// deed_id, which every event has.
//
//	ErrorCode 0 with a MessageID          accepted
//	200 without one, or not JSON          unknown
//	408, 5xx, no complete answer          unknown
//	429, as a status or a code            outage: too many calls; Retry-After is obeyed
//	10, 401: the token                    outage: mend it
//	405, 412, 413: the account            outage: it may not send
//	no connection                         outage
//	406: Postmark has put the recipient   refused for good; an event says why
//	on the stream's list of inactive ones
//	3xx, any other code and 4xx           refused for good
//
// Sources: Postmark's documentation of the e-mail API and of its error codes, and its
// article on idempotency keys, which says that there are none.
package postmark

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
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
	// ServerToken authenticates: that of a server of the account. Required.
	ServerToken string
	// MessageStream is the stream that e-mails go by. Default: the server's usual one for
	// transactional e-mails.
	MessageStream string
	// EventUser and EventPassword are what Postmark's webhooks give in their URLs
	// (https://USER:PASSWORD@…), which is all that shows who they are: 16 bytes or more of a
	// password. Default: nothing that is said is believed.
	EventUser, EventPassword string
	// Endpoint is the API's base. Default https://api.postmarkapp.com.
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
	// ServerToken; to replace the token, name the account as before.
	Account string
}

// Provider is a [delivery.Provider], a [delivery.Checker] and a [delivery.EventReader].
type Provider struct {
	opts      Options
	rules     delivery.EmailRules
	base      *url.URL
	transport *http.Transport
}

var stream = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

const leastPassword = 16 // bytes

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://api.postmarkapp.com"))
	errs := []error{err}
	errs = append(errs, adapter.CheckSecret("ServerToken", opts.ServerToken))
	if opts.MessageStream != "" && !stream.MatchString(opts.MessageStream) {
		errs = append(errs, errors.New("option MessageStream is not the id of a stream, of letters, digits, - and _"))
	}
	if (opts.EventUser == "") != (opts.EventPassword == "") || opts.EventPassword != "" && len(opts.EventPassword) < leastPassword {
		errs = append(errs, fmt.Errorf("options EventUser and EventPassword go together, and the password has at least %d bytes", leastPassword))
	}
	rules := delivery.EmailRules{From: opts.From, FromAllowed: opts.FromAllowed, HeadersAllowed: opts.HeadersAllowed}
	errs = append(errs, rules.Check())
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "postmark", Code: deed.Invalid, Err: err}
	}
	if opts.Account == "" {
		opts.Account = "token-" + adapter.Account("postmark", opts.ServerToken)
	}
	return &Provider{opts: opts, rules: rules, base: base, transport: httpcall.NewSingleUse()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: e-mail, without a key.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "postmark", Account: p.opts.Account, Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey,
		Reports: adapter.Reports(p.opts.EventUser != "", delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidSoftBounced, delivery.SaidDropped,
			delivery.SaidComplained, delivery.SaidUnsubscribed, delivery.SaidOpened, delivery.SaidClicked),
	}
}

// email is the body of POST /email.
type email struct {
	From     string               `json:"From"`
	To       string               `json:"To"`
	CC       string               `json:"Cc,omitempty"` // addresses with commas between them, as ReplyTo
	Subject  string               `json:"Subject"`
	ReplyTo  string               `json:"ReplyTo,omitempty"`
	Text     string               `json:"TextBody,omitempty"`
	HTML     string               `json:"HtmlBody,omitempty"`
	Headers  []adapter.NamedValue `json:"Headers,omitempty"`
	Files    []file               `json:"Attachments,omitempty"`
	Metadata map[string]string    `json:"Metadata"`
	Stream   string               `json:"MessageStream,omitempty"`
}

type file struct {
	Name      string `json:"Name"`
	Content   []byte `json:"Content"`
	Type      string `json:"ContentType"`
	ContentID string `json:"ContentID,omitempty"` // cid: and the id, of what is shown inline
}

// Render makes the body of POST /email.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	e, err := delivery.ReadEmail(d, p.rules)
	if err != nil {
		return nil, err
	}
	m := email{
		From: e.From, To: d.Recipient, CC: strings.Join(e.CC, ","), Subject: e.Subject, ReplyTo: e.ReplyTo, Text: cmp.Or(e.Text, plaintext.Of(e.HTML)), HTML: e.HTML,
		Metadata: map[string]string{"deed_id": d.ID}, Stream: p.opts.MessageStream,
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		m.Headers = append(m.Headers, adapter.NamedValue{Name: name, Value: e.Headers[name]})
	}
	for _, a := range e.Attachments {
		f := file{Name: a.Name, Content: a.Content, Type: a.Type}
		if a.Inline {
			f.ContentID = "cid:" + a.ContentID
		}
		m.Files = append(m.Files, f)
	}
	if d.SandboxFor != "" {
		m.Headers = append(m.Headers, adapter.NamedValue{Name: adapter.SandboxHeader, Value: d.SandboxFor})
	}
	return json.Marshal(m)
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored email
	if err := json.Unmarshal(body, &stored); err != nil || !strings.EqualFold(stored.To, r.Recipient()) {
		return delivery.Refused(fmt.Errorf("postmark: %w", delivery.ErrOtherRecipient))
	}
	if err := adapter.CheckStored("postmark", p.rules, adapter.Names(stored.Headers)); err != nil {
		return delivery.Refused(err)
	}
	h := p.headers()
	h.Set("Content-Type", "application/json")
	return judge(httpcall.Post(ctx, p.transport, p.base.JoinPath("email"), h, body))
}

func (p *Provider) headers() http.Header {
	h := http.Header{}
	h.Set("X-Postmark-Server-Token", p.opts.ServerToken)
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "deed")
	return h
}

// said is what Postmark answers.
type said struct {
	Code      *int   `json:"ErrorCode"`
	MessageID string `json:"MessageID"`
	Name      string `json:"Name"` // a server's
}

// What codes mean, since what Postmark says of them may name the recipient.
var meanings = map[int]string{
	10: "the token is not a server's", 300: "a field of the e-mail is not valid", 400: "the sender's signature is not known", 401: "the sender's signature is not confirmed",
	402: "no JSON", 403: "a field is of another type", 405: "the account may not send: its credits are spent", 406: "the recipient is inactive: they bounced, complained, or were suppressed in Postmark",
	411: "an attachment is of a type that is not sent", 412: "the account is not approved yet", 413: "the account may not send", 429: "too many calls",
}

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("postmark", a)
	}
	var s said
	_ = json.Unmarshal(a.Body, &s)
	code := -1
	if s.Code != nil {
		code = *s.Code
	}
	if a.Status >= 200 && a.Status < 300 && code <= 0 {
		if code != 0 || s.MessageID == "" {
			return delivery.Unknown(fmt.Errorf("postmark: status %d without a message's id", a.Status)).WithCode(a.Code())
		}
		return delivery.Accepted(s.MessageID).WithCode(a.Code())
	}
	after, _ := header.RetryAfter(a.Header, time.Now())
	out := judgeCode(a.Status, code, problem(a.Status, code), after)
	if code >= 0 {
		return out.WithCode(fmt.Sprint(code))
	}
	return out.WithCode(a.Code())
}

// problem says what is wrong in words of ours; code is -1 if there is none.
func problem(status, code int) error {
	switch meaning := meanings[code]; {
	case code < 0:
		return fmt.Errorf("postmark: status %d", status)
	case meaning == "":
		return fmt.Errorf("postmark: status %d, code %d", status, code)
	default:
		return fmt.Errorf("postmark: status %d, code %d: %s", status, code, meaning)
	}
}

// judgeCode says what came of a call that was not accepted. Whatever the code is, a
// server's error may have done it.
func judgeCode(status, code int, err error, after time.Duration) delivery.Outcome {
	switch {
	case status == http.StatusRequestTimeout, status >= 500, status < 200:
		return delivery.Unknown(err)
	case status == http.StatusTooManyRequests, code == 429, code == 10, status == http.StatusUnauthorized, code == 405, code == 412, code == 413:
		return delivery.Outage(err, after)
	}
	return delivery.Refused(err)
}

// Check asks for the token's server.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	a := httpcall.Get(ctx, p.transport, p.base.JoinPath("server"), p.headers())
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var s said
	token := delivery.Check{What: "server token", OK: json.Unmarshal(a.Body, &s) == nil && a.Status == http.StatusOK && s.Name != ""}
	token.Info = "of the server " + httpcall.Line([]byte(s.Name))
	if !token.OK {
		code := -1
		if s.Code != nil {
			code = *s.Code
		}
		token.Info = strings.TrimPrefix(problem(a.Status, code).Error(), "postmark: ") + "; take the token of a server, from its API Tokens"
	}
	return []delivery.Check{connected, token}
}
