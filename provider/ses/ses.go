// Package ses sends e-mail through Amazon SES's API v2: a provider of package delivery.
//
// SES knows no repeat, and finds nothing without the id that only its answer has: a call
// whose outcome is unknown is settled by the delivery's guarantee, or by an event. Each
// e-mail carries the delivery's id as the tag deed_id, which events have only with a
// configuration set.
//
//	200 with a MessageId                    accepted
//	200 without one, or not JSON            unknown
//	408, 5xx, no complete answer            unknown
//	TooManyRequests, Throttling, 429        outage: more at once than SES takes
//	the same at the end of the day's quota  rests for an hour: it is of the last 24
//	LimitExceeded                           outage
//	AccountSuspended, SendingPaused         outage: mend the account
//	401, 403, what else is said of the      outage: mend the credentials, what they may
//	credentials or the signature            do, or the machine's clock
//	no connection                           outage
//	MessageRejected, BadRequest, NotFound,  refused for good
//	MailFromDomainNotVerified, 3xx and any
//	other 4xx
//
// Requests are signed (Signature Version 4) at the time of the machine's clock, of which
// AWS refuses what is minutes off.
//
// Sources: the SES API v2 reference (SendEmail, GetAccount, MessageHeader, Destination,
// common errors), the developer guide on sending quotas, and aws-sdk-go-v2's sesv2 for
// hosts and where an error has its name.
package ses

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
)

// Options configures a Provider.
type Options struct {
	// Region is where the account sends from: "eu-central-1". Required.
	Region string
	// AccessKeyID and SecretAccessKey are of a user who may ses:SendEmail. Required.
	AccessKeyID, SecretAccessKey string
	// SessionToken goes with keys that end. Default: these do not.
	SessionToken string
	// ConfigurationSet is the set that says who is told what becomes of e-mails. Default:
	// the sender's own, if it has one.
	ConfigurationSet string
	// EventTopic is the ARN of the SNS topic that the configuration set publishes to:
	// "arn:aws:sns:…". Default: nothing that is said is believed.
	EventTopic string
	// EventsEndpoint is where SNS is, whose certificates are taken and whose
	// subscriptions are confirmed there alone: for tests. Default: the hosts of AWS.
	EventsEndpoint string
	// Endpoint is the API's base. Default: the region's, https://email.REGION.amazonaws.com.
	Endpoint string
	// From is the sender of e-mails that name none. Default: none.
	From string
	// FromAllowed are the senders that payloads may name: addresses, @domains, or
	// * for all. Default: those of From's domain; all, if there is no From.
	FromAllowed []string
	// HeadersAllowed are the headers that payloads may set beside the usual ones;
	// see [delivery.EmailRules].
	HeadersAllowed []string
	// Account names the account, see [delivery.Capabilities]. Default: the region and a
	// short hash of AccessKeyID; to replace the key, name the account as before.
	Account string
}

// Provider is a [delivery.Provider], a [delivery.Checker] and a [delivery.EventReader].
type Provider struct {
	opts      Options
	rules     delivery.EmailRules
	base      *url.URL
	signer    *v4.Signer
	transport *http.Transport
	keys      keys
}

var (
	region     = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]{1,20}){1,3}-[0-9]{1,2}$`)
	eventTopic = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^arn:aws(-[a-z]+){0,2}:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)
	})
	configurationSet = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// host is the region's, in the part of AWS that it is of.
func host(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "https://email." + region + ".amazonaws.com.cn"
	case strings.HasPrefix(region, "eusc-"):
		return "https://email." + region + ".amazonaws.eu"
	}
	return "https://email." + region + ".amazonaws.com"
}

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	var errs []error
	if !region.MatchString(opts.Region) {
		errs = append(errs, errors.New("option Region is not one of AWS, such as eu-central-1"))
		opts.Region = "unknown"
	}
	base, err := adapter.Endpoint(cmp.Or(opts.Endpoint, host(opts.Region)))
	errs = append(errs, err)
	for _, one := range []struct {
		name, value string
		required    bool
	}{{"AccessKeyID", opts.AccessKeyID, true}, {"SecretAccessKey", opts.SecretAccessKey, true}, {"SessionToken", opts.SessionToken, false}} {
		if one.required && one.value == "" || !adapter.IsVisible(one.value) {
			errs = append(errs, fmt.Errorf("option %s is empty or not visible ASCII", one.name))
		}
	}
	if opts.ConfigurationSet != "" && !configurationSet.MatchString(opts.ConfigurationSet) {
		errs = append(errs, errors.New("option ConfigurationSet is not a name of up to 64 letters, digits, - and _"))
	}
	if opts.EventTopic != "" && !eventTopic().MatchString(opts.EventTopic) {
		errs = append(errs, errors.New("option EventTopic is not the ARN of an SNS topic, such as arn:aws:sns:eu-central-1:123456789012:events"))
	}
	rules := delivery.EmailRules{From: opts.From, FromAllowed: opts.FromAllowed, HeadersAllowed: opts.HeadersAllowed}
	errs = append(errs, rules.Check())
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "ses", Code: deed.Invalid, Err: err}
	}
	if opts.Account == "" {
		opts.Account = opts.Region + "/key-" + adapter.Account("ses", opts.AccessKeyID)
	}
	return &Provider{opts: opts, rules: rules, base: base, signer: v4.NewSigner(), transport: httpcall.NewSingleUse()}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: e-mail, without a key.
func (p *Provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{
		Kind: "ses", Account: p.opts.Account, Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey,
		Reports: adapter.Reports(p.opts.EventTopic != "", delivery.SaidAccepted, delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidSoftBounced, delivery.SaidDropped,
			delivery.SaidComplained, delivery.SaidOpened, delivery.SaidClicked),
	}
}

// Send posts the request.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	var stored email
	if err := json.Unmarshal(body, &stored); err != nil || len(stored.Destination.To) != 1 || !strings.EqualFold(stored.Destination.To[0], r.Recipient()) {
		return delivery.Refused(fmt.Errorf("ses: %w", delivery.ErrOtherRecipient))
	}
	if err := adapter.CheckStored("ses", p.rules, adapter.Names(stored.Content.Simple.Headers)); err != nil {
		return delivery.Refused(err)
	}
	target := p.base.JoinPath("v2/email/outbound-emails")
	h, err := p.signed(ctx, http.MethodPost, target, body)
	if err != nil {
		return delivery.Outage(fmt.Errorf("ses: %w", err), 0)
	}
	return judge(httpcall.Post(ctx, p.transport, target, h, body))
}

// signed makes a request's headers, with its signature among them.
func (p *Provider) signed(ctx context.Context, method string, target *url.URL, body []byte) (http.Header, error) {
	h := http.Header{}
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "deed")
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	credentials := aws.Credentials{AccessKeyID: p.opts.AccessKeyID, SecretAccessKey: p.opts.SecretAccessKey, SessionToken: p.opts.SessionToken}
	sum := sha256.Sum256(body)
	r := &http.Request{Method: method, URL: target, Host: target.Host, Header: h, ContentLength: int64(len(body))}
	if err := p.signer.SignHTTP(ctx, credentials, r, hex.EncodeToString(sum[:]), "ses", p.opts.Region, time.Now()); err != nil {
		return nil, errors.New("the request cannot be signed")
	}
	return r.Header, nil
}

var (
	throttled = []string{"TooManyRequestsException", "ThrottlingException", "Throttling"}
	paused    = []string{"AccountSuspendedException", "SendingPausedException", "LimitExceededException"}
	aboutUser = []string{ // who calls, not what is sent
		"AccessDeniedException", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId", "InvalidSignatureException", "MissingAuthenticationTokenException",
		"NotAuthorized", "OptInRequired", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException",
	}
)

func judge(a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		return adapter.Unanswered("ses", a)
	}
	if a.Status >= 200 && a.Status < 300 {
		var accepted struct {
			ID string `json:"MessageId"`
		}
		if err := json.Unmarshal(a.Body, &accepted); err != nil || accepted.ID == "" {
			return delivery.Unknown(fmt.Errorf("ses: status %d without a MessageId", a.Status)).WithCode(a.Code())
		}
		return delivery.Accepted(accepted.ID).WithCode(a.Code())
	}
	// A message may name the recipient.
	name, message := nameOf(a)
	err := fmt.Errorf("ses: status %d %s", a.Status, cmp.Or(name, "without a name"))
	after, _ := header.RetryAfter(a.Header, time.Now())
	out := judgeName(a.Status, name, strings.Contains(message, "quota"), err, after)
	return out.WithCode(cmp.Or(name, a.Code()))
}

// judgeName says what came of a call by the error's name, "" if it has none, and the
// status. What is said of a quota only tells how long to wait.
func judgeName(status int, name string, quota bool, err error, after time.Duration) delivery.Outcome {
	switch {
	case status == http.StatusRequestTimeout, status >= 500, status < 200:
		return delivery.Unknown(err)
	case slices.Contains(throttled, name), status == http.StatusTooManyRequests:
		if quota {
			return delivery.Quota(fmt.Errorf("%w: the account's quota is spent", err), delivery.RenewedIn(max(after, time.Hour)))
		}
		return delivery.Outage(err, after)
	case slices.Contains(paused, name), slices.Contains(aboutUser, name), status == http.StatusUnauthorized, status == http.StatusForbidden:
		return delivery.Outage(err, after)
	}
	return delivery.Refused(err)
}

var errorName = regexp.MustCompile(`^[A-Za-z]{1,60}$`)

// nameOf returns an error's name, which a header has or the body, and its text.
func nameOf(a httpcall.Answer) (name, message string) {
	var said struct {
		Type    string `json:"__type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(a.Body, &said)
	name = cmp.Or(a.Header.Get("X-Amzn-Errortype"), said.Type, said.Code)
	name, _, _ = strings.Cut(name, ":")          // a URL may follow
	name = name[strings.LastIndex(name, "#")+1:] // and what it is of come before
	if !errorName.MatchString(name) {
		name = ""
	}
	return name, said.Message
}

// Check asks how the account stands, which a user who may only send is not told.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	target := p.base.JoinPath("v2/email/account")
	credentials := delivery.Check{What: "credentials"}
	h, err := p.signed(ctx, http.MethodGet, target, nil)
	if err != nil {
		credentials.Info = err.Error()
		return []delivery.Check{credentials}
	}
	a := httpcall.Get(ctx, p.transport, target, h)
	connected := adapter.Reached(p.base, a)
	if a.Err != nil {
		return []delivery.Check{connected}
	}
	var said struct {
		Sending    *bool  `json:"SendingEnabled"`
		Production bool   `json:"ProductionAccessEnabled"`
		Standing   string `json:"EnforcementStatus"`
		Quota      struct {
			Day    float64 `json:"Max24HourSend"`
			Second float64 `json:"MaxSendRate"`
		} `json:"SendQuota"`
	}
	name, _ := nameOf(a)
	if name == "AccessDeniedException" {
		credentials.OK, credentials.Info = true, "they may not ses:GetAccount, so nothing more can be looked at"
		return []delivery.Check{connected, credentials}
	}
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &said) != nil || said.Sending == nil {
		credentials.Info = strings.TrimSpace(fmt.Sprintf("status %d %s", a.Status, name)) +
			"; look at the access key, at its secret, at the region and at the machine's clock"
		return []delivery.Check{connected, credentials}
	}
	credentials.OK, credentials.Info = true, "they are accepted"
	account := delivery.Check{What: "account", OK: *said.Sending && said.Standing != "SHUTDOWN"}
	account.Info = fmt.Sprintf("it may send %g a day and %g a second", said.Quota.Day, said.Quota.Second)
	switch {
	case !account.OK:
		account.Info = "its sending is paused; see the SES console"
	case !said.Production:
		account.Info += ", and being in SES's sandbox, to verified addresses alone"
	}
	return []delivery.Check{connected, credentials, account}
}
