// Package webhook delivers to any HTTP endpoint: a provider of package
// delivery for what has none of its own. The recipient is the URL, the payload
// the body; requests are signed as Standard Webhooks lays down, with the
// delivery's id as webhook-id.
//
//	2xx                             accepted
//	3xx, 4xx but for those below    refused for good
//	no connection                   outage, of this host alone
//	429                             outage, of this host alone; Retry-After is obeyed
//	503 with Retry-After            the same
//	425                             not now
//	408, 409, 5xx                   unknown
//	no complete answer              unknown
//	an address that is not allowed  refused for good
//	a host that is not among Hosts  refused for good
//
// A receiver that promises to drop repeats by webhook-id (DropsRepeats) makes
// unknown outcomes safe to repeat; else the delivery's guarantee decides, and
// each request has a connection of its own.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
	sink "github.com/deedhq/deed/sink/webhook"
)

// Options configures a Provider.
type Options struct {
	// Secret signs the requests: "whsec_" and the base64 of 24 to 64 bytes, or any
	// other string of at least 16 bytes. Required.
	Secret string
	// PreviousSecret, while a secret is being replaced, signs them too.
	PreviousSecret string
	// Hosts are the only ones that are called: names or addresses, *.example.com
	// for those below example.com, each with a :port or for any; over https,
	// unless http:// stands before it. Required with Headers. Default: whichever a
	// delivery names.
	Hosts []string
	// AllowHosts exempts hosts from the address guard, as in sink/webhook.
	AllowHosts []string
	// DropsRepeats is for how long the receivers promise to know a webhook-id.
	// Default: they promise nothing.
	DropsRepeats time.Duration
	// Headers are sent with every request, to the Hosts, which they need: who
	// reserves a delivery chooses its URL.
	Headers map[string]string
	// RootCAs verify https endpoints. Default: the system's.
	RootCAs *x509.CertPool
}

// Provider is a [delivery.Provider] and a [delivery.Checker].
type Provider struct {
	opts      Options
	hosts     []host
	signer    sink.Signer
	headers   http.Header
	transport *http.Transport
}

const dialTimeout = 10 * time.Second

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	signer, err := sink.NewSigner(opts.Secret, opts.PreviousSecret)
	errs := []error{err}
	dial, err := sink.Dialer(opts.AllowHosts, dialTimeout)
	errs = append(errs, err)
	if opts.DropsRepeats != 0 && opts.DropsRepeats < time.Minute {
		errs = append(errs, fmt.Errorf("option DropsRepeats %s is below a minute", opts.DropsRepeats))
	}
	var hosts []host
	for _, entry := range opts.Hosts {
		one, err := parseHost(entry)
		hosts, errs = append(hosts, one), append(errs, err)
	}
	if len(opts.Headers) > 0 && len(opts.Hosts) == 0 {
		errs = append(errs, errors.New("option Headers needs Hosts: whoever reserves a delivery names its URL, and would be sent them; list the hosts that may have them"))
	}
	h := http.Header{}
	for name, value := range opts.Headers {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "webhook-") || strings.Contains(lower, "idempotency-key") || lower == "content-type" || lower == "host" ||
			header.Encode(value, false) != value || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
			errs = append(errs, fmt.Errorf("option Headers: %q cannot be sent, or is set by deed", name))
		}
		h.Set(name, value)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "webhook provider", Code: deed.Invalid, Err: err}
	}
	return &Provider{opts: opts, hosts: hosts, signer: signer, headers: h, transport: &http.Transport{
		Proxy: nil, // it would hide the endpoint's address from the guard
		// A connection that was idle may be closed by the time that a request is
		// written to it, and nobody can tell that from one that was taken: used again
		// only where a repeat is safe.
		DisableKeepAlives: opts.DropsRepeats == 0,
		DialContext:       httpcall.Count(dial), ForceAttemptHTTP2: true, HTTP2: httpcall.Pings(), MaxIdleConns: 1000, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opts.RootCAs}, TLSHandshakeTimeout: dialTimeout,
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Capabilities says: webhooks, each host a destination of its own, with a key
// if the receivers promise to drop repeats.
func (p *Provider) Capabilities() delivery.Capabilities {
	c := delivery.Capabilities{Kind: "webhook", Channels: []delivery.Channel{delivery.Webhook}, Key: delivery.NoKey, Lanes: delivery.LanePerHost, Reports: []delivery.Said{}}
	if p.opts.DropsRepeats > 0 {
		c.Key, c.KeyWindow = delivery.HasKey, p.opts.DropsRepeats
	}
	return c
}

// Render makes the body, which is the payload.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	u, err := endpoint(d.Recipient)
	if err != nil {
		return nil, err
	}
	if d.SandboxFor == "" { // the operator has named the sandbox
		err = p.check(u)
	}
	return d.Payload, err
}

// endpoint never puts the URL into an error: it may hold credentials.
func endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" {
		return nil, errors.New("the recipient of a webhook is an http or https URL")
	}
	if u.User != nil {
		return nil, errors.New("the URL holds a user or password; put an authorization header into the provider's headers")
	}
	return u, nil
}

// Send posts the body, signed anew: the time of a signature is the attempt's.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	target, err := endpoint(r.Recipient())
	if err != nil {
		return delivery.Refused(err)
	}
	if err := p.check(target); err != nil && r.SandboxFor() == "" {
		return delivery.Refused(err) // it was rendered under other rules
	}
	h := p.headers.Clone()
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "deed")
	if id := r.CorrelationID(); id != "" {
		h.Set("Correlation-Id", header.Encode(id, false))
	}
	if id := r.ChannelMessageID(); id != "" {
		h.Set("Channel-Message-Id", id)
	}
	if real, err := endpoint(r.SandboxFor()); err == nil {
		h.Set("Deed-Sandbox-For", real.Host) // the rest of a URL may be a secret
	}
	p.signer.Sign(h, r.ID(), time.Now(), body)
	a := httpcall.Post(ctx, p.transport, target, h, body)
	return judge(target.Host, a).WithCode(a.Code())
}

func judge(host string, a httpcall.Answer) delivery.Outcome {
	if a.Err != nil {
		if refusal := sink.RefusedAddress(a.Err); refusal != nil {
			return delivery.Refused(fmt.Errorf("webhook: %w", refusal))
		}
		if a.Connected {
			return delivery.Unknown(fmt.Errorf("webhook %s: %w", host, a.Err))
		}
		return delivery.Outage(fmt.Errorf("webhook %s: %w", host, a.Err), 0)
	}
	if a.Status >= 200 && a.Status < 300 {
		return delivery.Accepted("")
	}
	err := fmt.Errorf("webhook %s: status %d", host, a.Status)
	after, asked := header.RetryAfter(a.Header, time.Now())
	switch {
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable && asked:
		return delivery.Outage(err, after)
	case a.Status == http.StatusTooEarly:
		return delivery.NotNow(err, after)
	case a.Status == http.StatusRequestTimeout, a.Status == http.StatusConflict, a.Status >= 500, a.Status < 200:
		return delivery.Unknown(err)
	}
	return delivery.Refused(err)
}

// Check says what can be said without a recipient.
func (p *Provider) Check(context.Context) []delivery.Check {
	return []delivery.Check{{What: "secret", OK: true, Info: "requests can be signed; endpoints are checked when something is sent to them"}}
}
