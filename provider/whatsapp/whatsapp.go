// Package whatsapp sends messages through WhatsApp's Cloud API: a provider of package
// delivery, for the channel chat.
//
// WhatsApp knows no repeat and finds nothing again: a call whose outcome is unknown is
// settled by the delivery's guarantee alone. Each message carries the delivery's id as
// biz_opaque_callback_data.
//
//	200 with a message's id                 accepted
//	200 without one, or not JSON            unknown
//	131000, 131016, 1, 2, 408, 5xx          unknown
//	no complete answer                      unknown
//	131056: this recipient too often        the recipient is paused, for six seconds
//	429, 4, 80007, 130429: too many         outage; Retry-After is obeyed
//	131048: too many were reported as spam  outage
//	0, 3, 10, 190, 200 to 299, 368, 131005  outage: mend the token, what it may do,
//	131031, 131042, 133010, 401             or the account
//	131057: the account is being worked on  outage
//	no connection                           outage
//	131050: they want no marketing          opted out
//	3xx and any other error                 refused for good
//
// Sources: Meta's documentation of the Cloud API (messages, error codes), of groups and of
// business-scoped user ids.
package whatsapp

import (
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
	// Token is a system user's access token, with whatsapp_business_messaging. Required.
	Token string
	// PhoneNumberID is the id of the number that writes, which is not the number.
	// Required.
	PhoneNumberID string
	// Endpoint is the API's base with its version. Default
	// https://graph.facebook.com/v23.0.
	Endpoint string
}

// Payload is what a delivery says: one of Text, Template and Interactive.
type Payload struct {
	Text        string          `json:"text,omitempty"`        // up to 4096 characters; within 24 hours of what they wrote last
	PreviewURL  bool            `json:"preview_url,omitempty"` // of a text
	Template    json.RawMessage `json:"template,omitempty"`    // as the Cloud API has it: {"name", "language": {"code"}, "components"}
	Interactive json.RawMessage `json:"interactive,omitempty"` // as the Cloud API has it
	ReplyTo     string          `json:"reply_to,omitempty"`    // the id of the message that is answered: wamid.…
}

// Provider is a [delivery.Provider] and a [delivery.Checker].
type Provider struct {
	opts      Options
	base      *url.URL
	transport *http.Transport
}

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://graph.facebook.com/v23.0"))
	errs := []error{err}
	errs = append(errs, adapter.CheckSecret("Token", opts.Token))
	if opts.PhoneNumberID == "" || len(opts.PhoneNumberID) > 30 || strings.Trim(opts.PhoneNumberID, "0123456789") != "" {
		errs = append(errs, errors.New("option PhoneNumberID is not the id of a number, which is up to 30 digits"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "whatsapp", Code: deed.Invalid, Err: err}
	}
	return &Provider{opts: opts, base: base, transport: httpcall.NewSingleUse()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: chat, without a key, and each recipient a lane: 80 calls a second of
// the number, which is what one has at first, and one in six seconds of a recipient. The
// account is the number's id.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "whatsapp", Account: "number-" + p.opts.PhoneNumberID, Channels: []delivery.Channel{delivery.Chat}, Key: delivery.NoKey,
		Lanes: delivery.LanePerRecipient, Limits: map[string]float64{"": 80, "*": 1.0 / 6}, Defer: 15 * time.Second, GiveUpAfter: 4 * time.Hour,
	}
}

// message is the body of POST /PHONE_NUMBER_ID/messages.
type message struct {
	Product     string          `json:"messaging_product"`
	Whom        string          `json:"recipient_type"`      // individual or group
	To          string          `json:"to,omitempty"`        // a number, or a group
	Recipient   string          `json:"recipient,omitempty"` // a business-scoped user id
	Type        string          `json:"type"`
	Text        *text           `json:"text,omitempty"`
	Template    json.RawMessage `json:"template,omitempty"`
	Interactive json.RawMessage `json:"interactive,omitempty"`
	Context     *answered       `json:"context,omitempty"`
	Marker      string          `json:"biz_opaque_callback_data"`
}

type text struct {
	PreviewURL bool   `json:"preview_url"`
	Body       string `json:"body"`
}

type answered struct {
	ID string `json:"message_id"`
}

var (
	number = regexp.MustCompile(`^\+?([1-9][0-9]{6,14})$`)
	userID = regexp.MustCompile(`^[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}$`)
	group  = regexp.MustCompile(`^Y2FwaV9ncm91cDo[A-Za-z0-9+/=_-]{1,200}$`)
)

// writeTo says who gets a message.
func (m *message) writeTo(recipient string) error {
	m.Whom = "individual"
	switch parts := number.FindStringSubmatch(recipient); {
	case parts != nil:
		m.To = parts[1]
	case userID.MatchString(recipient):
		m.Recipient = recipient
	case group.MatchString(recipient):
		m.Whom, m.To = "group", recipient
	default:
		return errors.New("the recipient is neither a number with its country's code, nor a business-scoped user id such as US.13491208655302741918, nor a group's id")
	}
	return nil
}

const mostText = 4096 // characters

// Render makes the body of POST /PHONE_NUMBER_ID/messages. The recipient is a number with
// its country's code, a business-scoped user id, or a group's id.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	m := message{Product: "whatsapp", Marker: d.ID}
	if err := m.writeTo(d.Recipient); err != nil {
		return nil, err
	}
	var said Payload
	if err := adapter.ReadPayload(d.Payload, &said, "what a message has", "text, preview_url, template, interactive and reply_to"); err != nil {
		return nil, err
	}
	if err := m.say(said); err != nil {
		return nil, err
	}
	if said.ReplyTo != "" {
		m.Context = &answered{said.ReplyTo}
	}
	return json.Marshal(m)
}

// say has the message say one thing.
func (m *message) say(p Payload) error {
	body, template, interactive := strings.TrimSpace(p.Text) != "", p.Template != nil, p.Interactive != nil
	switch {
	case body && !template && !interactive:
		if utf8.RuneCountInString(p.Text) > mostText {
			return fmt.Errorf("the text has over %d characters", mostText)
		}
		m.Type, m.Text = "text", &text{p.PreviewURL, p.Text}
	case template && !body && !interactive:
		m.Type, m.Template = "template", p.Template
	case interactive && !body && !template:
		m.Type, m.Interactive = "interactive", p.Interactive
	default:
		return errors.New("the payload has none of text, template and interactive, or more than one")
	}
	for name, raw := range map[string]json.RawMessage{"template": p.Template, "interactive": p.Interactive} {
		if raw != nil && (len(raw) == 0 || raw[0] != '{') {
			return fmt.Errorf("the payload's %s is no object", name)
		}
	}
	if template {
		var t struct {
			Name     string `json:"name"`
			Language struct {
				Code string `json:"code"`
			} `json:"language"`
		}
		if json.Unmarshal(p.Template, &t) != nil || t.Name == "" || t.Language.Code == "" {
			return errors.New("the payload's template has no name, or no language with a code")
		}
	}
	return nil
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored, to message
	if to.writeTo(r.Recipient()) != nil || json.Unmarshal(body, &stored) != nil || stored.To != to.To || stored.Recipient != to.Recipient {
		return delivery.Refused(fmt.Errorf("whatsapp: %w", delivery.ErrOtherRecipient))
	}
	h := adapter.Bearer(p.opts.Token)
	h.Set("Content-Type", "application/json")
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath(p.opts.PhoneNumberID, "messages"), h, body)
	return judge(a)
}

// said is an answer of the Cloud API.
type said struct {
	Messages []struct {
		ID string `json:"id"`
	} `json:"messages"`
	Error *struct {
		Code json.RawMessage `json:"code"`
	} `json:"error"`
	Number string `json:"display_phone_number"`
	Name   string `json:"verified_name"`
}

// code is the error's, -1 where it has none that can be read: 0 is one.
func (s said) code() int {
	if s.Error == nil {
		return -1
	}
	code, err := strconv.Atoi(string(s.Error.Code))
	if err != nil {
		return -1
	}
	return code
}

// What codes mean, since what WhatsApp says of them may name the recipient.
var meanings = map[int]string{
	0: "the token is not valid", 100: "a parameter is not valid", 190: "the token has expired", 368: "the account is blocked for a while", 130472: "the recipient is in an experiment of WhatsApp's",
	130497: "the account may not write to that country", 131005: "the token may not do that", 131008: "a parameter is missing", 131009: "a parameter's value is not valid",
	131021: "the recipient is the sender", 131026: "it cannot be delivered to that number", 131030: "the recipient is not on the test number's list", 131031: "the account is locked",
	131042: "the account's payment is not in order", 131047: "their last message is over 24 hours old: send a template", 131048: "too many messages were blocked or reported as spam",
	131049: "WhatsApp holds back marketing to that person", 131050: "the recipient wants no marketing", 131051: "messages of that type are not known", 131056: "too many messages to that recipient",
	131057: "the account is in maintenance mode",
	131062: "that message needs a number, and not a user id", 132000: "the template has another number of parameters", 132001: "there is no such template in that language",
	132015: "the template is paused", 132016: "the template is disabled", 133010: "the account's number is not registered",
}

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("whatsapp", a)
	}
	var s said
	readable := json.Unmarshal(a.Body, &s) == nil
	if a.Status >= 200 && a.Status < 300 && s.Error == nil {
		if !readable || len(s.Messages) != 1 || s.Messages[0].ID == "" {
			return delivery.Unknown(fmt.Errorf("whatsapp: status %d without a message's id", a.Status)).WithCode(a.Code())
		}
		return delivery.Accepted(s.Messages[0].ID).WithCode(a.Code())
	}
	err, code := fmt.Errorf("whatsapp: status %d", a.Status), s.code()
	if code >= 0 {
		err = fmt.Errorf("whatsapp: status %d, code %d", a.Status, code)
		if meaning := meanings[code]; meaning != "" {
			err = fmt.Errorf("%w: %s", err, meaning)
		}
	}
	after, _ := header.RetryAfter(a.Header, time.Now())
	out := judgeCode(a.Status, code, err, after)
	if code >= 0 {
		return out.WithCode(fmt.Sprint(code))
	}
	return out.WithCode(a.Code())
}

// judgeCode says what came of a call by the error's code, -1 if there is none, and the
// status.
func judgeCode(status, code int, err error, after time.Duration) delivery.Outcome {
	switch code {
	case 131056:
		return delivery.LaneOutage(err, max(after, 6*time.Second))
	case 4, 80007, 130429, 131048, 0, 3, 10, 190, 368, 131005, 131031, 131042, 131057, 133010:
		return delivery.Outage(err, after)
	case 1, 2, 131000, 131016:
		return delivery.Unknown(err)
	case 131050:
		return delivery.OptedOut(err)
	}
	switch {
	case code >= 200 && code <= 299, status == http.StatusUnauthorized:
		return delivery.Outage(err, after)
	case status == http.StatusTooManyRequests:
		return delivery.Outage(err, after)
	case status == http.StatusRequestTimeout, status >= 500, status < 300:
		return delivery.Unknown(err)
	}
	return delivery.Refused(err)
}

// Check asks for the number's name.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	target := p.base.JoinPath(p.opts.PhoneNumberID)
	target.RawQuery = "fields=display_phone_number,verified_name"
	a := httpcall.Get(ctx, p.transport, target, adapter.Bearer(p.opts.Token))
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var s said
	token := delivery.Check{What: "token and number", OK: json.Unmarshal(a.Body, &s) == nil && a.Status == http.StatusOK && s.Number != ""}
	token.Info = httpcall.Line([]byte(s.Number + ", " + s.Name))
	if !token.OK {
		token.Info = fmt.Sprintf("status %d", a.Status)
		if code := s.code(); code >= 0 {
			token.Info = strings.TrimSuffix(fmt.Sprintf("status %d, code %d: %s", a.Status, code, meanings[code]), ": ")
		}
		token.Info += "; make a token of a system user that may use the number"
	}
	return []delivery.Check{connected, token}
}
