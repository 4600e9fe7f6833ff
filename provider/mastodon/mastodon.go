// Package mastodon posts statuses through the API of a Mastodon instance: a provider of
// package delivery, for the channel social.
//
// A post is to nobody in particular: the recipient of a delivery is the account that posts,
// "@name@instance", and the request is made with that account's token. So no delivery is
// posted as anybody that it does not name.
//
//	200 with an id                          accepted
//	2xx without one, or not JSON            unknown: repeated under the key
//	408, 5xx, no complete answer            unknown: repeated under the key
//	429: too many calls of the account      rests until X-RateLimit-Reset
//	401, 403                                outage: mend the token, or the account
//	no connection                           outage
//	3xx and any other 4xx, such as 422      refused for good
//
// # Doubts
//
// Every request carries the delivery's key as Idempotency-Key, which an instance remembers
// "for up to 1 hour": it begins when the status has been made, and ends early where the
// instance loses its cache. [Window] leaves five minutes of it for a repeat that is slow to
// arrive, and the ledger another tenth. An instance notes the key only after it has made the
// status, so that a repeat that met the first call still at work would be another status: a
// repeat waits a minute.
//
// What is in doubt after that, or when a repeat was refused, is looked for among the
// account's own statuses of that time, by what they say, since nothing else in them is the
// delivery's: see [Provider.Find].
//
// # The sandbox
//
// While the ledger has a sandbox, posts are its account's: another one of the instance, with
// a token of its own, or the account itself. They are visible to that account alone, and
// name nobody: an @ in them is a ＠, and replies and media are left out.
//
// Sources: Mastodon's documentation of statuses, accounts and rate limits; its
// post_status_service.rb, text_formatter.rb and status_length_validator.rb.
package mastodon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/graphemes"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
)

// Window is for how long an instance is taken to remember an idempotency key.
const Window = 55 * time.Minute

// Options configures a Provider.
type Options struct {
	// Endpoint is the instance: https://mastodon.example. Required.
	Endpoint string
	// Account posts, and is what deliveries name as their recipient:
	// "@name@mastodon.example". Required.
	Account string
	// Token is an access token of Account's, which may write statuses and, to look up what is
	// in doubt, read accounts and statuses. Required.
	Token string
	// Sandbox is another account of the instance, and SandboxToken a token of its, for a
	// ledger whose sandbox it is. Default: none.
	Sandbox, SandboxToken string
	// MaxCharacters is how long a status may be at this instance. Default 500.
	MaxCharacters int
}

// Payload is what a delivery says.
type Payload struct {
	Text        string   `json:"text,omitempty"`
	Visibility  string   `json:"visibility,omitempty"`   // public, unlisted, private or direct; default: the account's own
	Language    string   `json:"language,omitempty"`     // such as en; default: the account's own
	SpoilerText string   `json:"spoiler_text,omitempty"` // what is shown before the text
	Sensitive   bool     `json:"sensitive,omitempty"`
	InReplyToID string   `json:"in_reply_to_id,omitempty"` // a status of the instance
	MediaIDs    []string `json:"media_ids,omitempty"`      // uploaded by the account before
}

// Provider is a [delivery.Finder] and a [delivery.Checker].
type Provider struct {
	opts      Options
	base      *url.URL
	transport *http.Transport
}

// handle is an account's name and its instance.
var handle = regexp.MustCompile(`^@([A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]+)?)$`)

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	opts.MaxCharacters = cmp.Or(opts.MaxCharacters, 500)
	base, err := adapter.Endpoint(opts.Endpoint)
	errs := []error{err}
	if !handle.MatchString(opts.Account) {
		errs = append(errs, errors.New("option Account is not an account such as @name@mastodon.example"))
	}
	if opts.Sandbox != "" && !handle.MatchString(opts.Sandbox) {
		errs = append(errs, errors.New("option Sandbox is not an account such as @name@mastodon.example"))
	}
	if (opts.Sandbox == "") != (opts.SandboxToken == "") && !strings.EqualFold(opts.Sandbox, opts.Account) {
		errs = append(errs, errors.New("options Sandbox and SandboxToken go together"))
	}
	errs = append(errs, adapter.CheckSecret("Token", opts.Token))
	if !adapter.IsVisible(opts.SandboxToken) {
		errs = append(errs, errors.New("option SandboxToken is not visible ASCII"))
	}
	if opts.MaxCharacters < 1 {
		errs = append(errs, errors.New("option MaxCharacters is below 1"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "mastodon", Code: deed.Invalid, Err: err}
	}
	return &Provider{opts: opts, base: base, transport: httpcall.NewTransport()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: social, with a key for [Window], which is repeated after a minute. The
// account is Account, whatever its token; it has 300 calls in five minutes, one a second.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "mastodon", Account: strings.ToLower(p.opts.Account), Channels: []delivery.Channel{delivery.Social},
		Key: delivery.HasKey, KeyWindow: Window, SettleDelay: time.Minute, Lanes: delivery.OneLane, Limits: map[string]float64{"": 1}, Reports: []delivery.Said{},
	}
}

// errNotOurs does not name the recipient.
var errNotOurs = errors.New("the recipient is no account that the provider posts as: it is its account, such as @name@mastodon.example")

// tokenOf is the token of an account that a delivery names.
func (p *Provider) tokenOf(recipient string) (string, error) {
	switch {
	case strings.EqualFold(recipient, p.opts.Account):
		return p.opts.Token, nil
	case p.opts.Sandbox != "" && strings.EqualFold(recipient, p.opts.Sandbox):
		return p.opts.SandboxToken, nil
	}
	return "", errNotOurs
}

// status is the body of POST /api/v1/statuses.
type status struct {
	Status      string   `json:"status"`
	Visibility  string   `json:"visibility,omitempty"`
	Language    string   `json:"language,omitempty"`
	SpoilerText string   `json:"spoiler_text,omitempty"`
	Sensitive   bool     `json:"sensitive,omitempty"`
	InReplyToID string   `json:"in_reply_to_id,omitempty"`
	MediaIDs    []string `json:"media_ids,omitempty"`
}

// Render makes the body of POST /api/v1/statuses. It names nobody: the recipient is whose
// token the call is made with.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	if _, err := p.tokenOf(d.Recipient); err != nil {
		return nil, err
	}
	var said Payload
	if err := adapter.ReadPayload(d.Payload, &said, "what a status has", "text, visibility, language, spoiler_text, sensitive, in_reply_to_id and media_ids"); err != nil {
		return nil, err
	}
	s := status{
		Status: said.Text, Visibility: said.Visibility, Language: said.Language, SpoilerText: said.SpoilerText, Sensitive: said.Sensitive,
		InReplyToID: said.InReplyToID, MediaIDs: said.MediaIDs,
	}
	switch {
	case strings.TrimSpace(s.Status) == "" && len(s.MediaIDs) == 0:
		return nil, errors.New("the payload has neither text nor media_ids")
	case s.Visibility != "" && !slices.Contains([]string{"public", "unlisted", "private", "direct"}, s.Visibility):
		return nil, errors.New("the payload's visibility is none of public, unlisted, private and direct")
	case s.length() > p.opts.MaxCharacters:
		return nil, fmt.Errorf("the payload's text and spoiler_text have over %d characters together", p.opts.MaxCharacters)
	}
	if d.SandboxFor != "" {
		s = s.private()
	}
	return json.Marshal(s)
}

var (
	link   = regexp.MustCompile(`https?://\S+`)
	remote = regexp.MustCompile(`(@[A-Za-z0-9_]+)@[A-Za-z0-9.-]*[A-Za-z0-9]`)
)

// length is how many characters an instance counts at least: a link as 23, and of a mention
// the name.
func (s status) length() int {
	text := link.ReplaceAllStringFunc(s.Status, func(l string) string { return strings.ToValidUTF8(l[:min(len(l), 23)], "") })
	return graphemes.Least(s.SpoilerText + remote.ReplaceAllString(text, "$1"))
}

// private is a status that its account alone sees.
func (s status) private() status {
	s.Visibility, s.InReplyToID, s.MediaIDs = "direct", "", nil
	s.Status, s.SpoilerText = strings.ReplaceAll(s.Status, "@", "＠"), strings.ReplaceAll(s.SpoilerText, "@", "＠")
	if strings.TrimSpace(s.Status) == "" {
		s.Status = "(media)"
	}
	return s
}

// Send posts the request as the recipient, under the delivery's key.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	token, err := p.tokenOf(r.Recipient())
	if err != nil {
		return delivery.Refused(fmt.Errorf("mastodon: %w", err))
	}
	h := adapter.Bearer(token)
	h.Set("Content-Type", "application/json")
	h.Set("Idempotency-Key", r.Key())
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath("api/v1/statuses"), h, body)
	return judge(a).WithCode(a.Code())
}

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("mastodon", a)
	}
	if a.Status >= 200 && a.Status < 300 {
		var made struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(a.Body, &made) != nil || made.ID == "" {
			return delivery.Unknown(fmt.Errorf("mastodon: status %d without an id", a.Status))
		}
		return delivery.Accepted(made.ID)
	}
	err := problem(a.Status) // what an instance says may repeat the request, in any language
	switch {
	case a.Status == http.StatusTooManyRequests:
		if wait := reset(a.Header, time.Now()); wait > 0 {
			return delivery.Quota(err, delivery.RenewedIn(wait))
		}
		return delivery.Outage(err, 0)
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		return delivery.Outage(err, 0)
	case a.Status == http.StatusRequestTimeout, a.Status >= 500, a.Status < 200:
		return delivery.Unknown(err)
	}
	return delivery.Refused(err)
}

// problem says what is wrong in words of ours.
func problem(code int) error {
	meaning, ok := map[int]string{
		http.StatusUnauthorized: ": the token is refused", http.StatusForbidden: ": the token may not, or the account is disabled",
		http.StatusNotFound: ": there is no such status to reply to, or no such instance", http.StatusUnprocessableEntity: ": the instance takes no such status",
		http.StatusTooManyRequests: ": too many calls",
	}[code]
	if !ok && code >= 300 && code < 400 {
		meaning = ": the instance is elsewhere"
	}
	return fmt.Errorf("mastodon: status %d%s", code, meaning)
}

// reset is how long the instance asks to wait, by its own clock where it tells it.
func reset(h http.Header, now time.Time) time.Duration {
	if after, ok := header.RetryAfter(h, now); ok {
		return after
	}
	at, err := time.Parse(time.RFC3339Nano, h.Get("X-RateLimit-Reset"))
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, at.Sub(now))
}
