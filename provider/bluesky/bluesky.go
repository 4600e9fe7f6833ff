// Package bluesky posts to Bluesky through an account's server (PDS) of the AT Protocol: a
// provider of package delivery, for the channel social.
//
// A post is to nobody in particular: the recipient of a delivery is the account that posts, by
// its handle or its DID, and the request names it as the repository that it is written to.
//
//	2xx with the record's uri               accepted
//	2xx without it, or not JSON             unknown: repeated under the same rkey
//	408, 5xx, no complete answer            unknown: repeated under the same rkey
//	429, to sign in                         outage; RateLimit-Reset is obeyed
//	429, to post: points are used up        rests until RateLimit-Reset
//	no session: the password is refused,    outage: nothing was posted
//	or the server does not answer
//	401, 403, ExpiredToken and what else    outage: a new session, or mend the account
//	is said of the token or the account
//	ConcurrentWrites                        not now
//	no connection                           outage
//	3xx and any other 4xx                   refused for good
//
// # Doubts
//
// A record's key (rkey) is chosen by who writes it, and a repository has one record under a
// key. The rkey of a post is made of its delivery's id and key, and stands in the bytes that are sent
// again, so a repeat never makes a second post, however late it is: a key that is remembered for ever. [Window] bounds for how long the ledger
// repeats what stays unclear before it leaves it to the guarantee; not even what the guarantee
// then sends again is posted twice.
//
// Of a record that exists the reference PDS says 500 to who writes it again, which may be any
// other failure as well: that is unknown. So a repeat with an unknown outcome looks the record up
// by itself, since the ledger repeats before it looks; what is left after the window, or after a
// repeat that was refused, the ledger looks up by [Provider.Find]. Either counts only if the
// record has the delivery's text.
//
// # Sessions
//
// A server lets an account sign in 100 to 300 times a day. A session is kept and refreshed, and
// after the account was refused nobody signs in for a quarter of an hour, whatever is to be sent.
//
// # The sandbox
//
// While the ledger has a sandbox, posts are its account's, with a password of its own. They are
// public, like all posts, but mention nobody.
//
// Sources: the lexicons of com.atproto.repo, com.atproto.server and app.bsky.feed.post; the
// specification of TIDs; the reference PDS (createRecord.ts, auth-verifier.ts, rate-limiter.ts;
// bluesky-social/atproto#3718); Bluesky's documentation of rate limits.
package bluesky

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/graphemes"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
)

// Window is for how long what is unclear is repeated, though a record's key would be safe for
// ever: after a week somebody should know.
const Window = 7 * 24 * time.Hour

const (
	collection = "app.bsky.feed.post"
	mostBytes  = 3000
	mostText   = 300 // characters as people count them
)

// Options configures a Provider.
type Options struct {
	// Account posts, and is what deliveries name as their recipient: its handle, such as
	// shop.example.com, or its DID, which outlives the handle. Required.
	Account string
	// Password is an app password of Account's. Required.
	Password string
	// Sandbox is another account of the same server, and SandboxPassword its app password,
	// for a ledger whose sandbox it is. Default: none.
	Sandbox, SandboxPassword string
	// Endpoint is the account's server. Default https://bsky.social.
	Endpoint string
}

// Provider is a [delivery.Finder] and a [delivery.Checker].
type Provider struct {
	opts      Options
	base      *url.URL
	transport *http.Transport
	sessions  map[string]*session // by account, in lower case
}

// account is a handle or a DID.
var account = regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?|did:[a-z]+:[A-Za-z0-9._:%-]*[A-Za-z0-9._-])$`)

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://bsky.social"))
	errs := []error{err}
	if !isAccount(opts.Account) {
		errs = append(errs, errors.New("option Account is neither a handle such as shop.example.com nor a DID"))
	}
	if opts.Password == "" {
		errs = append(errs, errors.New("option Password is empty"))
	}
	if opts.Sandbox != "" && !isAccount(opts.Sandbox) {
		errs = append(errs, errors.New("option Sandbox is neither a handle such as shop.example.com nor a DID"))
	}
	if (opts.Sandbox == "") != (opts.SandboxPassword == "") {
		errs = append(errs, errors.New("options Sandbox and SandboxPassword go together"))
	}
	if opts.Sandbox != "" && strings.EqualFold(opts.Sandbox, opts.Account) {
		errs = append(errs, errors.New("option Sandbox is Account, whose posts are public"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "bluesky", Code: deed.Invalid, Err: err}
	}
	p := &Provider{opts: opts, base: base, transport: httpcall.NewTransport(), sessions: map[string]*session{}}
	p.sessions[strings.ToLower(opts.Account)] = p.newSession(opts.Account, opts.Password)
	if opts.Sandbox != "" {
		p.sessions[strings.ToLower(opts.Sandbox)] = p.newSession(opts.Sandbox, opts.SandboxPassword)
	}
	return p, nil
}

func isAccount(text string) bool { return len(text) <= 300 && account.MatchString(text) }

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: social, with a key, which is repeated for [Window]. The account is
// Account, whatever its password.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "bluesky", Account: strings.ToLower(p.opts.Account), Channels: []delivery.Channel{delivery.Social}, Key: delivery.HasKey, KeyWindow: Window,
		Lanes: delivery.OneLane, Reports: []delivery.Said{},
	}
}

// errNotOurs does not name the recipient.
var errNotOurs = errors.New("the recipient is no account that the provider posts as: it is its account's handle, or DID, as the provider has it")

// create is the body of com.atproto.repo.createRecord.
type create struct {
	Repo       string `json:"repo"`
	Collection string `json:"collection"`
	RKey       string `json:"rkey"`
	Record     record `json:"record"`
}

// Render makes the body of com.atproto.repo.createRecord. The post is dated by that: a
// delivery that waited for its hour was reserved long before.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	if p.sessions[strings.ToLower(d.Recipient)] == nil {
		return nil, errNotOurs
	}
	if d.SandboxFor != "" && strings.EqualFold(d.Recipient, p.opts.Account) {
		return nil, errors.New("the sandbox is the provider's own account, whose posts are public")
	}
	said, err := readPayload(d.Payload)
	if err != nil {
		return nil, err
	}
	if graphemes.Least(said.Text) > mostText || len(said.Text) > mostBytes {
		return nil, fmt.Errorf("the payload's text has over %d characters or %d bytes", mostText, mostBytes)
	}
	post := said.record(d.At)
	if d.SandboxFor != "" {
		post.mentionNobody()
	}
	return json.Marshal(create{Repo: d.Recipient, Collection: collection, RKey: rkey(d.ID, d.Key), Record: post})
}

const sortable = "234567abcdefghijklmnopqrstuvwxyz"

// rkey is a record's key made of a delivery's id and key, since a key that retention has forgotten may be
// another's by then: a TID of 60 bits of their hash. Its time is before
// September 2005, so that it is none that a server or an app gives, and never in the future.
func rkey(id, key string) string {
	sum := sha256.Sum256([]byte("deed bluesky rkey " + id + " " + key))
	bits := binary.BigEndian.Uint64(sum[:8]) >> 4
	var tid [13]byte
	for i := len(tid) - 1; i >= 0; i-- {
		tid[i] = sortable[bits&31]
		bits >>= 5
	}
	return string(tid[:])
}

// Send writes the record, in the recipient's repository.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored create
	if json.Unmarshal(body, &stored) != nil || stored.Repo != r.Recipient() {
		return delivery.Refused(fmt.Errorf("bluesky: %w", delivery.ErrOtherRecipient))
	}
	s := p.sessions[strings.ToLower(r.Recipient())]
	if s == nil {
		return delivery.Refused(fmt.Errorf("bluesky: %w", errNotOurs))
	}
	token, err := s.token(ctx)
	if err != nil {
		return signedOut(err) // and nothing was posted
	}
	h := adapter.Bearer(token)
	h.Set("Content-Type", "application/json")
	a := httpcall.Post(ctx, p.transport, p.method("com.atproto.repo.createRecord"), h, body)
	out := judge(a, stored.RKey)
	if isAboutToken(a) {
		s.drop(ctx, token)
	}
	if r.Repeat() && out.String() == "unknown" {
		if found, err := p.look(ctx, token, stored); err == nil && found.Found {
			out = delivery.Accepted(found.MessageID)
		}
	}
	return out.WithCode(a.Code())
}

func (p *Provider) method(name string) *url.URL { return p.base.JoinPath("xrpc", name) }

// said is what a server says of what it refuses.
type said struct {
	Error string `json:"error"`
}

// nameOf is an error's name, which is from fixed lists; what a server says beside it may repeat
// the request.
func nameOf(a httpcall.Answer) string {
	var s said
	_ = json.Unmarshal(a.Body, &s)
	if len(s.Error) > 60 || strings.Trim(s.Error, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
		return ""
	}
	return s.Error
}

func problem(a httpcall.Answer) error {
	if name := nameOf(a); name != "" {
		return fmt.Errorf("bluesky: status %d, %s", a.Status, name)
	}
	return fmt.Errorf("bluesky: status %d", a.Status)
}

// isAboutToken reports whether a token was refused.
func isAboutToken(a httpcall.Answer) bool {
	if a.Err != nil || a.Status < 400 || a.Status >= 500 {
		return false
	}
	name := nameOf(a)
	return a.Status == http.StatusUnauthorized || name == "ExpiredToken" || name == "InvalidToken" || name == "AuthMissing"
}

func judge(a httpcall.Answer, key string) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("bluesky", a)
	}
	if a.Status >= 200 && a.Status < 300 {
		var made struct {
			URI string `json:"uri"`
		}
		if json.Unmarshal(a.Body, &made) != nil || !isPost(made.URI, key) {
			return delivery.Unknown(fmt.Errorf("bluesky: status %d without the record's uri", a.Status))
		}
		return delivery.Accepted(made.URI)
	}
	err, name := problem(a), nameOf(a)
	switch {
	case a.Status == http.StatusRequestTimeout, a.Status >= 500, a.Status < 200:
		return delivery.Unknown(err)
	case a.Status == http.StatusTooManyRequests:
		if wait := reset(a.Header, time.Now()); wait > 0 {
			return delivery.Quota(err, delivery.RenewedIn(wait))
		}
		return delivery.Outage(err, 0)
	case isAboutToken(a), a.Status == http.StatusForbidden, name == "AccountTakedown":
		return delivery.Outage(err, 0)
	case name == "ConcurrentWrites":
		return delivery.NotNow(err, 0)
	}
	return delivery.Refused(err)
}

// isPost reports whether uri names the post with that key.
func isPost(uri, key string) bool {
	return strings.HasPrefix(uri, "at://") && strings.HasSuffix(uri, "/"+collection+"/"+key) && len(uri) <= 500
}

// reset is how long the server asks to wait, by its own clock where it tells it.
func reset(h http.Header, now time.Time) time.Duration {
	if after, ok := header.RetryAfter(h, now); ok {
		return after
	}
	seconds, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, time.Unix(seconds, 0).Sub(now))
}

// Find looks for the record under the delivery's rkey. Only one with the same text is taken.
func (p *Provider) Find(ctx context.Context, r delivery.Reservation) (delivery.Finding, error) {
	body, err := r.Request()
	if err != nil {
		return delivery.Finding{}, err
	}
	var stored create
	s := p.sessions[strings.ToLower(r.Recipient())]
	if json.Unmarshal(body, &stored) != nil || stored.Repo != r.Recipient() || s == nil {
		return delivery.Finding{}, nil
	}
	token, err := s.token(ctx)
	if err != nil {
		return delivery.Finding{}, err
	}
	return p.look(ctx, token, stored)
}

func (p *Provider) look(ctx context.Context, token string, stored create) (delivery.Finding, error) {
	target := p.method("com.atproto.repo.getRecord")
	target.RawQuery = url.Values{"repo": {stored.Repo}, "collection": {stored.Collection}, "rkey": {stored.RKey}}.Encode()
	a := httpcall.Get(ctx, p.transport, target, adapter.Bearer(token))
	var found struct {
		URI   string `json:"uri"`
		Value struct {
			Text *string `json:"text"`
		} `json:"value"`
	}
	switch name := nameOf(a); {
	case a.Err != nil:
		return delivery.Finding{}, fmt.Errorf("bluesky: %w", a.Err)
	case a.Status == http.StatusOK && json.Unmarshal(a.Body, &found) == nil:
		ours := isPost(found.URI, stored.RKey) && found.Value.Text != nil && *found.Value.Text == stored.Record.Text
		return delivery.Finding{Found: ours, MessageID: found.URI}, nil
	case name == "RecordNotFound", name == "InvalidRequest" && bytes.Contains(a.Body, []byte("Could not locate record")):
		return delivery.Finding{}, nil
	}
	if isAboutToken(a) {
		p.sessions[strings.ToLower(stored.Repo)].drop(ctx, token)
	}
	return delivery.Finding{}, fmt.Errorf("look for the record: %w", problem(a))
}

// Check asks the server, and signs in.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	a := httpcall.Get(ctx, p.transport, p.method("com.atproto.server.describeServer"), adapter.Bearer(""))
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	checks := []delivery.Check{connected, p.checkSession(ctx, "account", p.opts.Account)}
	if p.opts.Sandbox != "" {
		checks = append(checks, p.checkSession(ctx, "sandbox's account", p.opts.Sandbox))
	}
	return checks
}

func (p *Provider) checkSession(ctx context.Context, what, account string) delivery.Check {
	if _, err := p.sessions[strings.ToLower(account)].token(ctx); err != nil {
		return delivery.Check{What: what, Info: strings.TrimPrefix(err.Error(), "bluesky: ") + "; make an app password in the settings of " + account}
	}
	return delivery.Check{What: what, OK: true, Info: "signed in as " + account}
}
