// Package twilio sends text messages and makes calls through Twilio: a provider of
// package delivery, for the channels sms and voice.
//
// Twilio knows no repeat. With StatusCallback each request carries the delivery's id in
// the URL that Twilio calls later, as ?ob=ID: what it calls back about was accepted.
//
//	2xx with a sid                       accepted
//	2xx without one, or not JSON         unknown: looked up
//	408, 5xx (20500 may have been done)  unknown: looked up
//	no complete answer                   unknown: looked up
//	429, which is never processed        outage; Retry-After is obeyed
//	21611: From's queue is full          outage
//	401; 10001, 20003, 20005, 20403,     outage: mend the credentials or the account
//	63038, 70051; a 403 whose code is
//	none, or no message's or call's
//	no connection                        outage
//	21211, 21614, 21635: no number, or   bad address
//	one that takes no texts
//	21610: the recipient has opted out   opted out
//	3xx and any other error, such as a   refused for good
//	403 of a message
//
// # What a look-up proves
//
// Twilio lists neither the URL of StatusCallback nor anything else that is a delivery's
// own. So a text message is looked up by all that it has in common with the request:
// recipient, sender or messaging service, text, and that it was made within two minutes
// of the call. Exactly one such message is taken for it. Two are none, since nobody can
// tell which is whose: then the guarantee decides, as where none is found.
//
// One match may still be another delivery's: of the same text to the same number within
// two minutes, one call accepted and the other one, in doubt, not. The ledger takes it only
// if no other delivery of the account has that message, or may have it
// ([delivery.Finding].Alike). Give texts that may be repeated so soon something of their
// own, such as a time or a code, where each of them matters.
//
// Of a call Twilio does not list what is said, either. Calls are only looked up with
// LookUpCalls, and else are settled by the guarantee.
//
// # The sandbox
//
// A call to the sandbox says what the payload's text or TwiML does, if that says something and
// does nothing else. Other TwiML and a URL may ring or write to somebody, so that it says instead
// that they are not carried out.
//
// Sources: twilio-oai (twilio_api_v2010) for requests and lists; Twilio's documentation of
// messages, calls and the errors that are named above.
package twilio

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
)

// Options configures a Provider.
type Options struct {
	// AccountSID is the account's: "AC…". Required.
	AccountSID string
	// AuthToken is the account's secret. Either it or an API key is required.
	AuthToken string
	// APIKeySID and APIKeySecret are an API key of the account's: "SK…", and its secret.
	APIKeySID, APIKeySecret string
	// From is who writes and calls: a number with + and its country's code or, for text
	// messages alone, a short code or a sender's name. Required without
	// MessagingServiceSID; without a number there are no calls.
	From string
	// MessagingServiceSID has the sender of text messages chosen by a messaging service of
	// Twilio's: "MG…". Default: they are From's.
	MessagingServiceSID string
	// StatusCallback is the URL that Twilio tells what became of messages and calls, with
	// ob=ID of the delivery added to its query, and, unless it has a fragment of its own, one
	// that has Twilio call again where the answer is a 5xx. Default: Twilio is not asked to.
	StatusCallback string
	// EventToken is the auth token with which Twilio signs what it tells StatusCallback:
	// the account's primary one. Default: AuthToken; without either nothing is believed.
	EventToken string
	// LookUpCalls has calls in doubt looked up by their numbers and time alone, which says
	// nothing of what was said: the only call from From to the recipient within two
	// minutes is taken for the delivery's. Only for a From that nothing else calls from,
	// and where two calls to one number so soon are as good as one.
	LookUpCalls bool
	// Endpoint is the API's base. Default https://api.twilio.com.
	Endpoint string
}

// Provider is a [delivery.Finder], a [delivery.Checker] and a [delivery.EventReader].
type Provider struct {
	opts      Options
	base      *url.URL // of the account
	transport *http.Transport
}

var (
	accountSID = regexp.MustCompile(`^AC[0-9a-fA-F]{32}$`)
	apiKeySID  = regexp.MustCompile(`^SK[0-9a-fA-F]{32}$`)
	serviceSID = regexp.MustCompile(`^MG[0-9a-fA-F]{32}$`)
	anySID     = regexp.MustCompile(`^[A-Z]{2}[0-9a-fA-F]{32}$`)
	number     = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	shortCode  = regexp.MustCompile(`^[0-9]{3,8}$`)
	senderName = regexp.MustCompile(`^[A-Za-z0-9 +_&-]{0,10}[A-Za-z][A-Za-z0-9 +_&-]{0,10}$`)
)

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, "https://api.twilio.com"))
	errs := []error{opts.checkSender()}
	errs = append(errs, err)
	if !accountSID.MatchString(opts.AccountSID) {
		errs = append(errs, errors.New("option AccountSID is not an account's, which is AC and 32 hexadecimal digits"))
	}
	for _, one := range []struct{ name, secret string }{{"AuthToken", opts.AuthToken}, {"APIKeySecret", opts.APIKeySecret}} {
		if !adapter.IsVisible(one.secret) {
			errs = append(errs, fmt.Errorf("option %s is not visible ASCII", one.name))
		}
	}
	key := opts.APIKeySID != "" || opts.APIKeySecret != ""
	switch {
	case key == (opts.AuthToken != ""):
		errs = append(errs, errors.New("options AuthToken, and APIKeySID with APIKeySecret: want one of them"))
	case key && opts.APIKeySecret == "":
		errs = append(errs, errors.New("option APIKeySecret is empty"))
	case key && !apiKeySID.MatchString(opts.APIKeySID):
		errs = append(errs, errors.New("option APIKeySID is not an API key's, which is SK and 32 hexadecimal digits"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "twilio", Code: deed.Invalid, Err: err}
	}
	opts.EventToken = cmp.Or(opts.EventToken, opts.AuthToken)
	return &Provider{opts: opts, base: base.JoinPath("2010-04-01", "Accounts", opts.AccountSID), transport: httpcall.NewSingleUse()}, nil
}

// checkSender checks who writes and calls, and who is told what becomes of it.
func (o Options) checkSender() error {
	var errs []error
	switch {
	case o.From == "" && o.MessagingServiceSID == "":
		errs = append(errs, errors.New("options From and MessagingServiceSID are both empty"))
	case o.From != "" && !number.MatchString(o.From) && !shortCode.MatchString(o.From) && (len(o.From) > 11 || !senderName.MatchString(o.From)):
		errs = append(errs, errors.New("option From is neither a number with + and its country's code, nor a short code, nor a name of up to 11 characters"))
	}
	if o.MessagingServiceSID != "" && !serviceSID.MatchString(o.MessagingServiceSID) {
		errs = append(errs, errors.New("option MessagingServiceSID is not a messaging service's, which is MG and 32 hexadecimal digits"))
	}
	if o.LookUpCalls && !number.MatchString(o.From) {
		errs = append(errs, errors.New("option LookUpCalls is for calls, and From is no number that calls"))
	}
	if u, err := url.Parse(o.StatusCallback); o.StatusCallback != "" &&
		(err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || strings.Contains(u.Hostname(), "_") || u.User != nil || len(o.StatusCallback) > 3900) {
		errs = append(errs, errors.New("option StatusCallback is not an http or https URL of at most 3900 characters, without a user or an underscore in its host"))
	}
	return errors.Join(errs...)
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: sms and, from a number, voice, without a key; what is in doubt can be
// looked up after a minute. The account is AccountSID.
func (p *Provider) Capabilities() delivery.Capabilities {
	channels := []delivery.Channel{delivery.SMS}
	if number.MatchString(p.opts.From) {
		channels = append(channels, delivery.Voice)
	}
	return delivery.Capabilities{
		Kind: "twilio", Account: p.opts.AccountSID, Channels: channels, Key: delivery.NoKey, SettleDelay: time.Minute,
		Lanes: delivery.LanePerCountry, Defer: 30 * time.Second, GiveUpAfter: 4 * time.Hour,
		Reports: adapter.Reports(p.opts.EventToken != "" && p.opts.StatusCallback != "", delivery.SaidAccepted, delivery.SaidDelivered, delivery.SaidSoftBounced, delivery.SaidDropped,
			delivery.SaidOpened, delivery.SaidAnswered),
	}
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	stored, err := url.ParseQuery(string(body))
	if err != nil || len(stored["To"]) != 1 || stored.Get("To") != r.Recipient() {
		return delivery.Refused(fmt.Errorf("twilio: %w", delivery.ErrOtherRecipient))
	}
	h := p.headers()
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	return judge(httpcall.Post(ctx, p.transport, p.base.JoinPath(resourceOf(stored).path), h, body))
}

func (p *Provider) headers() http.Header {
	user, secret := p.opts.AccountSID, p.opts.AuthToken
	if p.opts.APIKeySID != "" {
		user, secret = p.opts.APIKeySID, p.opts.APIKeySecret
	}
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, secret)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "deed")
	return r.Header
}

// said is what Twilio answers to a request.
type said struct {
	SID  string `json:"sid"`
	Code int    `json:"code"`
}

// What codes mean, since what Twilio says of them may name the recipient.
var meanings = map[int]string{
	10001: "the account is not active", 20003: "the credentials are refused", 20005: "the account is not active", 20403: "the account is suspended or closed", 20429: "too many requests", 20500: "it may have been done all the same",
	21211: "the recipient is no valid number", 21212: "From is not valid", 21408: "messages to that region are not enabled", 21606: "From cannot write to that recipient",
	21608: "a trial account writes to verified numbers alone", 21609: "StatusCallback is not valid", 21610: "the recipient has opted out", 21611: "the queue of From is full",
	21612: "that recipient cannot be reached from that sender", 21614: "the recipient is no number that takes text messages", 21635: "the recipient is a landline", 63038: "the account's messages of the day are spent",
	70051: "the account or the API key may not do that",
}

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("twilio", a)
	}
	var s said
	readable := json.Unmarshal(a.Body, &s) == nil
	if a.Status >= 200 && a.Status < 300 {
		if !readable || !anySID.MatchString(s.SID) {
			return delivery.Unknown(fmt.Errorf("twilio: status %d without a sid", a.Status)).WithCode(a.Code())
		}
		return delivery.Accepted(s.SID).WithCode(a.Code())
	}
	after, _ := header.RetryAfter(a.Header, time.Now())
	out := judgeCode(a.Status, s.Code, problem(a.Status, s.Code), after)
	if s.Code != 0 {
		return out.WithCode(fmt.Sprint(s.Code))
	}
	return out.WithCode(a.Code())
}

// problem says what is wrong in words of ours.
func problem(status, code int) error {
	switch meaning := meanings[code]; {
	case code == 0:
		return fmt.Errorf("twilio: status %d", status)
	case meaning == "":
		return fmt.Errorf("twilio: status %d, code %d", status, code)
	default:
		return fmt.Errorf("twilio: status %d, code %d: %s", status, code, meaning)
	}
}

// judgeCode says what came of a call that was not accepted. Whatever the code is, a
// server's error may have done it.
func judgeCode(status, code int, err error, after time.Duration) delivery.Outcome {
	switch {
	case status == http.StatusRequestTimeout, status >= 500, status < 200:
		return delivery.Unknown(err)
	case status == http.StatusUnauthorized, code == 10001, code == 20003, code == 20005, code == 20403, code == 63038, code == 70051,
		status == http.StatusForbidden && !ofMessage(code), status == http.StatusTooManyRequests, code == 20429, code == 21611:
		return delivery.Outage(err, after)
	case code == 21211, code == 21614, code == 21635:
		return delivery.BadAddress(err)
	case code == 21610:
		return delivery.OptedOut(err)
	}
	return delivery.Refused(err)
}

// ofMessage reports whether a code is of what was to be said, or of its recipient or
// sender: 11 to 19 thousand are of what Twilio carries out, 21 to 69 of messages and calls. All
// others are of the API, the account and its keys.
func ofMessage(code int) bool {
	return (code >= 11000 && code < 20000) || (code >= 21000 && code < 70000)
}

// Check lists one message, which look-ups do as well.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	target := p.base.JoinPath(messages.path)
	target.RawQuery = "PageSize=1"
	a := httpcall.Get(ctx, p.transport, target, p.headers())
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	credentials := delivery.Check{What: "credentials", OK: a.Status == http.StatusOK, Info: "they are accepted, and may look messages up"}
	if !credentials.OK {
		var s said
		_ = json.Unmarshal(a.Body, &s)
		credentials.Info = strings.TrimPrefix(problem(a.Status, s.Code).Error(), "twilio: ") +
			"; take the account's SID and auth token, or an API key of that account and region that may send and read messages"
	}
	return []delivery.Check{connected, credentials}
}
