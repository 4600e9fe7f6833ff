package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/deedhq/deed"
)

// Body says what a request's body is.
type Body string

const (
	// Raw is the payload, byte for byte.
	Raw Body = "raw"
	// CloudEvents is a CloudEvents 1.0 envelope in JSON, with the payload
	// inside: verbatim if it is JSON, as base64 otherwise.
	CloudEvents Body = "cloudevents"
)

// Options configures a Sink.
type Options struct {
	// URL is the endpoint, http or https. A user and password in it become a
	// basic Authorization header. Required.
	URL string

	// Secret signs the requests: "whsec_" and the base64 of 24 to 64 bytes, or any
	// other string of at least 16 bytes, which are the key. Required.
	Secret string

	// PreviousSecret, while a secret is being replaced, signs the requests too.
	// Default: none.
	PreviousSecret string

	// AllowHosts exempts hosts from the address guard: a name as it stands in
	// URL, an IP address, or a CIDR range. Default: none.
	AllowHosts []string

	// Body is [Raw] or [CloudEvents]. Default Raw.
	Body Body

	// Source is the CloudEvents source attribute, a URI reference. Default
	// "/deed/" and the topic.
	Source string

	// Timeout bounds a whole request, from the look-up of the name to the end of
	// the answer. Default 15s.
	Timeout time.Duration

	// Headers are sent with every request, and go before a message's own of the
	// same name. They may not replace the headers that deed sets. Default: none.
	Headers map[string]string

	// RootCAs are the authorities that https endpoints are verified against.
	// Default: the system's.
	RootCAs *x509.CertPool

	// MaxResponse is how many bytes of an answer's body are read, and discarded,
	// so that its connection can be used again. Default 64 KiB.
	MaxResponse int64

	// Breaker tunes the circuit breaker.
	Breaker Breaker
}

func (o Options) withDefaults() Options {
	o.Body = cmp.Or(o.Body, Raw)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.MaxResponse = cmp.Or(o.MaxResponse, 64<<10)
	o.Breaker.Failures = cmp.Or(o.Breaker.Failures, 5)
	o.Breaker.Pause = cmp.Or(o.Breaker.Pause, time.Second)
	o.Breaker.MaxPause = cmp.Or(o.Breaker.MaxPause, max(30*time.Second, o.Breaker.Pause))
	return o
}

// check finds what is wrong with the options that need no parsing.
func (o Options) check() []error {
	var errs []error
	if o.Body != Raw && o.Body != CloudEvents {
		errs = append(errs, fmt.Errorf("option Body %q is neither %q nor %q", o.Body, Raw, CloudEvents))
	}
	if o.Source != "" {
		if o.Body == Raw {
			errs = append(errs, fmt.Errorf("option Source is only used with Body %q", CloudEvents))
		}
		if _, err := url.Parse(o.Source); err != nil {
			errs = append(errs, errors.New("option Source is not a URI reference"))
		}
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("option Timeout %s is negative", o.Timeout))
	}
	if o.MaxResponse < 0 {
		errs = append(errs, fmt.Errorf("option MaxResponse %d is negative", o.MaxResponse))
	}
	b := o.Breaker
	if b.Failures < 0 {
		errs = append(errs, fmt.Errorf("option Breaker.Failures %d is negative", b.Failures))
	}
	if b.Pause < 0 || b.MaxPause < b.Pause {
		errs = append(errs, fmt.Errorf("option Breaker.Pause %s is not between 0 and MaxPause %s", b.Pause, b.MaxPause))
	}
	return errs
}

// A Sink posts messages to one endpoint. It is a [deed.Sink] and may be used by
// several goroutines at once.
type Sink struct {
	opts      Options
	url       *url.URL
	keys      [][]byte
	headers   http.Header
	hidden    []string // what must not enter an error's text, the longest first
	transport *http.Transport
	endpoint  *endpoint
	now       func() time.Time // the process's clock
}

// New checks opts and connects to nothing. All problems come in one error.
func New(opts Options) (*Sink, error) {
	opts = opts.withDefaults()
	s := &Sink{opts: opts, endpoint: newEndpoint(opts.Breaker), now: time.Now}
	errs := opts.check()
	collect := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	s.url, err = parseEndpoint(opts.URL)
	collect(err)
	s.keys, err = signingKeys(opts.Secret, opts.PreviousSecret)
	collect(err)
	s.headers, err = staticHeaders(opts.Headers)
	collect(err)
	g, err := newGuard(opts.AllowHosts)
	collect(err)
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "webhook", Code: deed.Invalid, Err: err}
	}
	s.setAuthorization()
	s.hidden = secrets(s.headers, s.url)
	s.transport = newTransport(opts, g.dialer(s.url.Hostname(), opts.Timeout))
	return s, nil
}

// parseEndpoint never puts the URL into an error: it may hold credentials.
func parseEndpoint(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("option URL is empty")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("option URL is not a valid URL")
	}
	var errs []error
	if u.Scheme != "http" && u.Scheme != "https" {
		errs = append(errs, errors.New("option URL does not begin with http:// or https://"))
	}
	if u.Hostname() == "" {
		errs = append(errs, errors.New("option URL names no host"))
	}
	if u.Fragment != "" {
		errs = append(errs, errors.New("option URL has a fragment, which is never sent"))
	}
	return u, errors.Join(errs...)
}

func (s *Sink) setAuthorization() {
	if user := s.url.User; user != nil && s.headers.Get("Authorization") == "" {
		password, _ := user.Password()
		r := http.Request{Header: s.headers}
		r.SetBasicAuth(user.Username(), password)
	}
	bare := *s.url
	bare.User = nil
	s.url = &bare
}

func newTransport(opts Options, dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		Proxy:       nil, // a proxy would hide the endpoint's address from the guard
		DialContext: dial,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    opts.RootCAs,
		},
		TLSHandshakeTimeout:    opts.Timeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: opts.Timeout, PingTimeout: opts.Timeout},
		DisableCompression:     true, // nobody reads the answer, so nobody should inflate it
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    100,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// State is the circuit breaker's: "closed", "open", or "half-open" once the
// pause is over and a probe may go through.
func (s *Sink) State() string { return s.endpoint.State() }

// Close closes the connections that are not in use. The Sink stays usable.
func (s *Sink) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// errorf names the endpoint's host and nothing else of its URL.
func (s *Sink) errorf(format string, args ...any) error {
	return fmt.Errorf("webhook %s: %w", s.url.Host, fmt.Errorf(format, args...))
}

// HoldOnNewCluster implements [deed.Holder]: a receiver cannot tell a copy's
// requests from the original's.
func (s *Sink) HoldOnNewCluster() bool { return true }
