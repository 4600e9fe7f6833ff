// Package telegram sends messages as a bot through Telegram's Bot API: a provider of
// package delivery, for the channel chat.
//
// Telegram knows no repeat and finds nothing again: a call whose outcome is unknown is
// settled by the delivery's guarantee alone.
//
//	ok, with a message_id                   accepted
//	ok without one, or not JSON             unknown
//	408, 5xx, no complete answer            unknown
//	429: too many, of this chat or at all   the chat is paused, for the retry_after that it has
//	401, 404: the token is wrong            outage: mend the token
//	no connection                           outage
//	3xx and any other 4xx                   refused for good
//
// Sources: the documentation of the Bot API (sendMessage, getMe, making requests).
package telegram

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/httpcall"
)

// Options configures a Provider.
type Options struct {
	// Token is the bot's, as @BotFather gives it: "110201543:AAH…". Required.
	Token string
	// Endpoint is the API's base, for a server of one's own. Default
	// https://api.telegram.org.
	Endpoint string
}

// Payload is what a delivery says.
type Payload struct {
	Text                string          `json:"text"`                           // 1 to 4096 characters, as Telegram counts them once marks are taken out
	ParseMode           string          `json:"parse_mode,omitempty"`           // HTML or MarkdownV2; default: none
	DisableNotification bool            `json:"disable_notification,omitempty"` // without a sound
	ProtectContent      bool            `json:"protect_content,omitempty"`      // may not be forwarded
	LinkPreview         json.RawMessage `json:"link_preview_options,omitempty"` // as the Bot API has it
	ReplyParameters     json.RawMessage `json:"reply_parameters,omitempty"`
	ReplyMarkup         json.RawMessage `json:"reply_markup,omitempty"`
}

// Provider is a [delivery.Provider] and a [delivery.Checker].
type Provider struct {
	bot       string // its id, which is no secret
	token     string
	base      *url.URL
	transport *http.Transport
}

var tokenForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,20}):[A-Za-z0-9_-]{1,200}$`) })

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://api.telegram.org"))
	errs := []error{err}
	parts := tokenForm().FindStringSubmatch(opts.Token)
	if parts == nil {
		errs = append(errs, errors.New("option Token is not a bot's token, as @BotFather gives it: digits, a colon, letters"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "telegram", Code: deed.Invalid, Err: err}
	}
	return &Provider{bot: parts[1], token: opts.Token, base: base, transport: httpcall.NewSingleUse()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: chat, without a key, and each chat a lane: 30 calls a second of the
// bot, one of a chat, 20 a minute of a group. The account is the bot's id, which a new
// token does not change.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "telegram", Account: "bot-" + p.bot, Channels: []delivery.Channel{delivery.Chat}, Key: delivery.NoKey,
		Lanes: delivery.LanePerRecipient, Limits: map[string]float64{"": 30, "*": 1, "-*": 20.0 / 60}, Defer: 15 * time.Second, GiveUpAfter: 4 * time.Hour,
		Reports: []delivery.Said{},
	}
}

// message is the body of sendMessage.
type message struct {
	ChatID json.RawMessage `json:"chat_id"`
	Thread int64           `json:"message_thread_id,omitempty"`
	Payload
}

// recipient is a chat: its number or a channel's @name, and after a stroke the number of
// a topic in it.
var recipient = regexp.MustCompile(`^(?:(-?[1-9][0-9]{0,18})|(@[A-Za-z][A-Za-z0-9_]{3,31}))(?:/([1-9][0-9]{0,9}))?$`)

// chatOf reads a recipient.
func chatOf(text string) (m message, err error) {
	parts := recipient.FindStringSubmatch(text)
	if parts == nil {
		return m, errors.New("the recipient is neither a chat's number nor a channel's @name, with /TOPIC behind it or not")
	}
	m.ChatID = json.RawMessage(parts[1])
	if parts[2] != "" {
		m.ChatID = json.RawMessage(strconv.Quote(parts[2]))
	}
	if parts[3] != "" {
		m.Thread, err = strconv.ParseInt(parts[3], 10, 64)
	}
	return m, err
}

const mostText = 4096 // characters, of UTF-16

// Render makes the body of sendMessage. The recipient is the chat's number or a channel's
// @name; /TOPIC behind it is a topic of the chat.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	m, err := chatOf(d.Recipient)
	if err != nil {
		return nil, err
	}
	const fields = "text, parse_mode, disable_notification, protect_content, link_preview_options, reply_parameters and reply_markup"
	if err := adapter.ReadPayload(d.Payload, &m.Payload, "what sendMessage takes", fields); err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(m.Text) == "":
		return nil, errors.New("the payload has no text")
	case m.ParseMode != "" && m.ParseMode != "HTML" && m.ParseMode != "MarkdownV2":
		return nil, errors.New("parse_mode is neither HTML nor MarkdownV2")
	case m.ParseMode == "" && len(utf16.Encode([]rune(m.Text))) > mostText:
		return nil, fmt.Errorf("the text has over %d characters", mostText)
	}
	return json.Marshal(m)
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored message
	to, err := chatOf(r.Recipient())
	if err != nil || json.Unmarshal(body, &stored) != nil || !bytes.Equal(stored.ChatID, to.ChatID) || stored.Thread != to.Thread {
		return delivery.Refused(fmt.Errorf("telegram: %w", delivery.ErrOtherRecipient))
	}
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "deed")
	a := httpcall.Post(ctx, p.transport, p.method("sendMessage"), h, body)
	return judge(a).WithCode(a.Code())
}

// method is a method's URL. It has the token in it, and is for no log.
func (p *Provider) method(name string) *url.URL { return p.base.JoinPath("bot"+p.token, name) }

// said is an answer of the Bot API.
type said struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int64 `json:"retry_after"`
		MovedTo    int64 `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// Descriptions that say nothing of what was sent. Others may quote it.
var plain = map[string]bool{
	"Bad Request: chat not found": true, "Bad Request: message is too long": true, "Bad Request: message text is empty": true, "Bad Request: message thread not found": true,
	"Bad Request: not enough rights to send text messages to the chat": true, "Bad Request: need administrator rights in the channel chat": true,
	"Forbidden: bot was blocked by the user": true, "Forbidden: user is deactivated": true, "Forbidden: bot can't initiate conversation with a user": true,
	"Forbidden: bot was kicked from the group chat": true, "Forbidden: bot was kicked from the supergroup chat": true, "Forbidden: bot is not a member of the channel chat": true,
	"Forbidden: bot is not a member of the supergroup chat": true, "Unauthorized": true, "Not Found": true,
}

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("telegram", a)
	}
	var s said
	readable := json.Unmarshal(a.Body, &s) == nil
	if a.Status >= 200 && a.Status < 300 {
		var sent struct {
			ID json.Number `json:"message_id"`
		}
		if !readable || !s.OK || json.Unmarshal(s.Result, &sent) != nil || sent.ID == "" {
			return delivery.Unknown(fmt.Errorf("telegram: status %d without a message_id", a.Status))
		}
		return delivery.Accepted(sent.ID.String())
	}
	err := fmt.Errorf("telegram: status %d", a.Status)
	switch {
	case plain[s.Description]:
		err = fmt.Errorf("%w: %s", err, s.Description)
	case s.Parameters.MovedTo != 0:
		err = fmt.Errorf("%w: the group has become a supergroup, which has another number", err)
	case strings.HasPrefix(s.Description, "Bad Request: can't parse"):
		err = fmt.Errorf("%w: the marks of its parse_mode cannot be read", err)
	}
	switch {
	case a.Status == http.StatusTooManyRequests:
		// Of this chat or of all: Telegram does not say. The others find out by themselves.
		return delivery.LaneOutage(err, time.Duration(max(min(s.Parameters.RetryAfter, 24*3600), 0))*time.Second)
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusNotFound:
		// It is about the token and not about this message.
		return delivery.Outage(err, 0)
	case a.Status == http.StatusRequestTimeout, a.Status >= 500, a.Status < 200:
		return delivery.Unknown(err)
	}
	return delivery.Refused(err)
}

// Check asks who the bot is.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	a := httpcall.Get(ctx, p.transport, p.method("getMe"), http.Header{"User-Agent": {"deed"}})
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var s said
	var bot struct {
		Name string `json:"username"`
	}
	token := delivery.Check{What: "token", OK: a.Status == http.StatusOK && json.Unmarshal(a.Body, &s) == nil && s.OK && json.Unmarshal(s.Result, &bot) == nil}
	token.Info = "it is @" + httpcall.Line([]byte(bot.Name))
	if !token.OK {
		token.Info = fmt.Sprintf("status %d; ask @BotFather for the bot's token", a.Status)
	}
	return []delivery.Check{connected, token}
}
