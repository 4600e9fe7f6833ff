// Package slack posts messages through Slack's Web API: a provider of package delivery,
// for the channel chat.
//
// Slack knows no repeat. Each message carries the delivery's id in its metadata, by which
// a call whose outcome is unknown is looked up in the channel's history: the app needs
// the scopes chat:write and channels:history (groups:, im: and mpim:history for what is
// not public, and im:write beside im:history for messages to persons, whose channel it is
// to ask for).
//
//	ok, with a ts                           accepted
//	ok without one, or not JSON             unknown: looked up
//	fatal_error, internal_error, 408, 5xx   unknown: looked up
//	no complete answer                      unknown: looked up
//	429, ratelimited                        the channel is paused, for Retry-After
//	no_permission, access_denied            the channel is paused: the app may not post there
//	invalid_auth and what else is said of   outage: mend the token, or what it may do
//	the token
//	no connection                           outage
//	3xx, any other error or 4xx             refused for good
//
// Sources: Slack's documentation of chat.postMessage, conversations.open,
// conversations.history, conversations.replies, message metadata and rate limits.
package slack

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
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
)

// Options configures a Provider.
type Options struct {
	// Token is the bot's: "xoxb-…". Required.
	Token string
	// Endpoint is the API's base. Default https://slack.com/api.
	Endpoint string
	// Account names the workspace and app, see [delivery.Capabilities]. Default: a short
	// hash of the token; to replace the token, name the account as before.
	Account string
}

// Payload is what a delivery says.
type Payload struct {
	Text           string          `json:"text,omitempty"`   // the message, or of blocks what a notification says
	Blocks         json.RawMessage `json:"blocks,omitempty"` // an array, as Slack's Block Kit has it
	ReplyBroadcast bool            `json:"reply_broadcast,omitempty"`
	UnfurlLinks    *bool           `json:"unfurl_links,omitempty"` // default: as Slack does
	UnfurlMedia    *bool           `json:"unfurl_media,omitempty"`
	Mrkdwn         *bool           `json:"mrkdwn,omitempty"`
}

// Provider is a [delivery.Finder] and a [delivery.Checker].
type Provider struct {
	opts      Options
	base      *url.URL
	transport *http.Transport
}

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://slack.com/api"))
	errs := []error{err}
	if !strings.HasPrefix(opts.Token, "xox") || !adapter.IsVisible(opts.Token) {
		errs = append(errs, errors.New("option Token is not a token of Slack's, which begins with xox"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "slack", Code: deed.Invalid, Err: err}
	}
	if opts.Account == "" {
		opts.Account = "token-" + adapter.Account("slack", opts.Token)
	}
	return &Provider{opts: opts, base: base, transport: httpcall.NewSingleUse()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: chat, without a key; what is in doubt can be looked up after two
// seconds. Each channel is a lane, with a call a second.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "slack", Account: p.opts.Account, Channels: []delivery.Channel{delivery.Chat}, Key: delivery.NoKey, SettleDelay: 2 * time.Second,
		Lanes: delivery.LanePerRecipient, Limits: map[string]float64{"*": 1}, Defer: 15 * time.Second, GiveUpAfter: 4 * time.Hour,
		Reports: []delivery.Said{},
	}
}

// message is the body of chat.postMessage.
type message struct {
	Channel string `json:"channel"`
	Thread  string `json:"thread_ts,omitempty"`
	Payload
	Metadata metadata `json:"metadata"`
}

const (
	eventType = "deed_delivery"
	maxText   = 40000 // of what is longer Slack posts a part, or nothing
)

type metadata struct {
	Type    string `json:"event_type"`
	Payload struct {
		ID string `json:"deed_id"`
	} `json:"event_payload"`
}

var (
	// channel is a channel's or a group's id, and after a stroke the ts of a thread in it. A
	// channel's name may pass to another one.
	channel = regexp.MustCompile(`^([CDG][A-Z0-9]{2,30})(?:/([0-9]{1,12}\.[0-9]{1,8}))?$`)
	// person is a user of a team: as contacts are known, so that what they have revoked, and
	// their erasure, finds what is sent to them. Users of two teams may have one id.
	person = regexp.MustCompile(`^[TE][A-Z0-9]{2,30}:([UW][A-Z0-9]{2,30})$`)
	user   = regexp.MustCompile(`^[UW][A-Z0-9]{2,30}(/.*)?$`)
)

func channelOf(text string) (m message, err error) {
	if parts := channel.FindStringSubmatch(text); parts != nil {
		m.Channel, m.Thread = parts[1], parts[2]
		return m, nil
	}
	if parts := person.FindStringSubmatch(text); parts != nil {
		m.Channel = parts[1]
		return m, nil
	}
	if user.MatchString(text) {
		return m, errors.New("the recipient is a user without a team: write TEAM:USER such as T0123ABCD:U024BE7LH, as the person is known by in Slack")
	}
	return m, errors.New("the recipient is no id of a channel such as C024BE91L, with /THREAD_TS behind it or not, and no person such as T0123ABCD:U024BE7LH")
}

// Render makes the body of chat.postMessage. The recipient is the id of a channel, with
// /THREAD_TS behind it a thread, or TEAM:USER, a person.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	m, err := channelOf(d.Recipient)
	if err != nil {
		return nil, err
	}
	if err := adapter.ReadPayload(d.Payload, &m.Payload, "what chat.postMessage takes", "text, blocks, reply_broadcast, unfurl_links, unfurl_media and mrkdwn"); err != nil {
		return nil, err
	}
	var blocks []json.RawMessage
	switch {
	case m.Blocks != nil && (json.Unmarshal(m.Blocks, &blocks) != nil || len(blocks) == 0):
		return nil, errors.New("the payload's blocks are no array of blocks")
	case len(blocks) > 50:
		return nil, errors.New("the payload has over 50 blocks")
	case m.Blocks == nil && strings.TrimSpace(m.Text) == "":
		return nil, errors.New("the payload has neither text nor blocks")
	case utf8.RuneCountInString(m.Text) > maxText:
		return nil, fmt.Errorf("the text has over %d characters", maxText)
	}
	m.Metadata.Type, m.Metadata.Payload.ID = eventType, d.ID
	return json.Marshal(m)
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored message
	to, err := channelOf(r.Recipient())
	if err != nil || json.Unmarshal(body, &stored) != nil || stored.Channel != to.Channel || stored.Thread != to.Thread {
		return delivery.Refused(fmt.Errorf("slack: %w", delivery.ErrOtherRecipient))
	}
	h := adapter.Bearer(p.opts.Token)
	h.Set("Content-Type", "application/json; charset=utf-8")
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath("chat.postMessage"), h, body)
	return judge(a).WithCode(a.Code())
}

// said is an answer of the Web API.
type said struct {
	OK       bool     `json:"ok"`
	Error    string   `json:"error"`
	TS       string   `json:"ts"`
	User     string   `json:"user"`
	Team     string   `json:"team"`
	Messages []posted `json:"messages"`
	Next     struct {
		Cursor string `json:"next_cursor"`
	} `json:"response_metadata"`
}

type posted struct {
	TS       string   `json:"ts"`
	Metadata metadata `json:"metadata"`
}

// name is the error's, which is from a fixed list.
func (s said) name() string {
	if s.Error == "" || len(s.Error) > 60 || strings.Trim(s.Error, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "an error without a name"
	}
	return s.Error
}

var (
	limited = []string{"ratelimited", "rate_limited", "message_limit_exceeded"}
	unclear = []string{"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
	// aboutChannel is of where it is posted, by Slack's words: the app is to be made a member
	// there, until which the other channels go on.
	aboutChannel = []string{"no_permission", "access_denied"}
	aboutUser    = []string{ // who calls, not what is sent
		"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "missing_scope", "not_allowed_token_type",
		"org_login_required", "ekm_access_denied", "team_access_not_granted", "accesslimited", "two_factor_setup_required",
		"team_added_to_org", // the workspace is being moved into an organisation, and not to be reached until that is over
	}
)

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("slack", a)
	}
	var s said
	readable := json.Unmarshal(a.Body, &s) == nil
	if s.OK && a.Status >= 200 && a.Status < 300 && s.TS != "" {
		return delivery.Accepted(s.TS)
	}
	err := fmt.Errorf("slack: status %d", a.Status)
	if readable && s.Error != "" {
		err = fmt.Errorf("slack: status %d, %s", a.Status, s.name())
	}
	after, _ := header.RetryAfter(a.Header, time.Now())
	switch {
	case a.Status == http.StatusTooManyRequests, slices.Contains(limited, s.Error):
		// Of this channel or of the workspace: Slack does not say. The others find out by
		// themselves.
		return delivery.LaneOutage(err, after)
	case slices.Contains(aboutChannel, s.Error):
		return delivery.LaneOutage(err, after)
	case slices.Contains(aboutUser, s.Error), a.Status == http.StatusUnauthorized:
		return delivery.Outage(err, after)
	case slices.Contains(unclear, s.Error), a.Status == http.StatusRequestTimeout, a.Status >= 500, a.Status < 200:
		return delivery.Unknown(err)
	case a.Status < 300 && (!readable || s.Error == ""):
		return delivery.Unknown(fmt.Errorf("slack: status %d without a ts", a.Status))
	}
	return delivery.Refused(err)
}

const (
	around    = 5 * time.Minute // by which Slack's clock may differ from ours
	pageSize  = 50
	mostPages = 20
	mostPage  = 4 << 20 // bytes: of 50 messages with 40,000 characters each, or with many blocks
)

// Find looks in the channel's history, around the time of the call, for a message with
// the delivery's id. What went to a person is in a channel of theirs and the app's.
func (p *Provider) Find(ctx context.Context, r delivery.Reservation) (delivery.Finding, error) {
	m, err := channelOf(r.Recipient())
	if err != nil {
		return delivery.Finding{}, err
	}
	if user.MatchString(m.Channel) {
		if m.Channel, err = p.channelWith(ctx, m.Channel); err != nil {
			return delivery.Finding{}, err
		}
	}
	query := url.Values{"channel": {m.Channel}, "limit": {strconv.Itoa(pageSize)}, "inclusive": {"true"}, "include_all_metadata": {"true"}}
	method := "conversations.history"
	if m.Thread != "" {
		method = "conversations.replies"
		query.Set("ts", m.Thread)
	}
	if at := r.CalledAt(); !at.IsZero() {
		query.Set("oldest", seconds(at.Add(-around)))
		query.Set("latest", seconds(at.Add(around)))
	}
	for range mostPages {
		s, err := p.ask(ctx, method, query)
		if err != nil {
			return delivery.Finding{}, err
		}
		for _, one := range s.Messages {
			if one.Metadata.Type == eventType && one.Metadata.Payload.ID == r.ID() {
				return delivery.Finding{Found: true, MessageID: one.TS}, nil
			}
		}
		if s.Next.Cursor == "" {
			break
		}
		query.Set("cursor", s.Next.Cursor)
	}
	return delivery.Finding{}, nil
}

func seconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) + ".000000" }

// channelWith is the channel of a person and the app, by which alone what was said in it is to
// be had. To ask for it opens it, as a message does, and says nothing to the person.
func (p *Provider) channelWith(ctx context.Context, person string) (string, error) {
	const method = "conversations.open"
	body, err := json.Marshal(map[string]string{"users": person})
	if err != nil {
		return "", err
	}
	h := adapter.Bearer(p.opts.Token)
	h.Set("Content-Type", "application/json; charset=utf-8")
	var opened struct {
		said
		Channel struct {
			ID string `json:"id"`
		} `json:"channel"`
	}
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath(method), h, body)
	if err := read(method, a, &opened, &opened.said); err != nil {
		return "", err
	}
	if opened.Channel.ID == "" {
		return "", fmt.Errorf("slack: %s: status %d without a channel", method, a.Status)
	}
	return opened.Channel.ID, nil
}

// ask calls a method that changes nothing.
func (p *Provider) ask(ctx context.Context, method string, query url.Values) (s said, err error) {
	target := p.base.JoinPath(method)
	target.RawQuery = query.Encode()
	a := httpcall.GetUpTo(ctx, p.transport, target, adapter.Bearer(p.opts.Token), mostPage)
	if len(a.Body) == mostPage {
		return s, fmt.Errorf("slack: %s: an answer of over %d MiB", method, mostPage>>20)
	}
	err = read(method, a, &s, &s)
	return s, err
}

// read reads a method's answer into something that has s in it.
func read(method string, a httpcall.Answer, into any, s *said) error {
	switch {
	case a.Err != nil:
		return fmt.Errorf("slack: %s: %w", method, a.Err)
	case json.Unmarshal(a.Body, into) != nil:
		return fmt.Errorf("slack: %s: status %d", method, a.Status)
	case !s.OK:
		return fmt.Errorf("slack: %s: status %d, %s", method, a.Status, s.name())
	}
	return nil
}

// Check asks whose the token is.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	a := httpcall.Get(ctx, p.transport, p.base.JoinPath("auth.test"), adapter.Bearer(p.opts.Token))
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var s said
	token := delivery.Check{What: "token", OK: json.Unmarshal(a.Body, &s) == nil && s.OK}
	token.Info = httpcall.Line([]byte(fmt.Sprintf("it is of %s in %s", s.User, s.Team)))
	if !token.OK {
		token.Info = fmt.Sprintf("status %d, %s; install the app again and take its bot token", a.Status, s.name())
	}
	return []delivery.Check{connected, token}
}
