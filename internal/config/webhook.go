package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/signing"
)

// Webhook says how to reach an HTTP endpoint. A zero value means that the file
// says nothing.
type Webhook struct {
	URL string // http or https, with a host and without a user or password

	// Secret signs the requests: "whsec_" and the base64 of 24 to 64 bytes, as
	// Standard Webhooks has it, or any other string of at least 16 bytes, which
	// is the key as it stands.
	Secret Secret

	// PreviousSecret signs them too while a secret is being replaced.
	PreviousSecret Secret

	AllowHosts []string // host names, IP addresses, CIDR ranges
	Body       string   // raw or cloudevents
	Timeout    time.Duration

	// Headers have their names in lower case. Their values may come from env:
	// and file:, so all are treated as secrets.
	Headers map[string]Secret

	Breaker Breaker

	Batch int // messages in one POST; 0: one, and no batch
}

// Breaker tunes a circuit breaker.
type Breaker struct {
	Failures int
	Pause    time.Duration
	MaxPause time.Duration
}

func (s *section) webhook() *Webhook {
	for _, key := range []string{"url", "secret"} {
		if !s.Has(key) {
			s.Problemf(s.Line, s.Path, "the webhook has no %s", key)
		}
	}
	w := &Webhook{
		URL:            s.endpoint("url"),
		Secret:         s.webhookSecret("secret"),
		PreviousSecret: s.webhookSecret("previous_secret"),
		Body:           s.Choice("body", "raw", "cloudevents"),
		Timeout:        s.Duration("timeout", 0, 0),
		Batch:          s.Number("batch", 1, 1000),
	}
	s.Texts("allow_hosts", func(v string, line int) {
		if !isHostEntry(v) {
			s.Problemf(line, document.Join(s.Path, "allow_hosts"), "%q is not a host name, IP address or CIDR range", v)
		}
		w.AllowHosts = append(w.AllowHosts, v)
	})
	if h := s.sub("headers"); h != nil {
		w.Headers = h.headers()
	}
	if b := s.sub("breaker"); b != nil {
		w.Breaker = Breaker{
			Failures: b.Number("failures", 1, 1000),
			Pause:    b.Duration("pause", 0, 0),
			MaxPause: b.Duration("max_pause", 0, 0),
		}
		if w.Breaker.MaxPause > 0 && w.Breaker.Pause > w.Breaker.MaxPause {
			b.Keyf("max_pause", "%s is below pause, %s", w.Breaker.MaxPause, w.Breaker.Pause)
		}
		b.Done()
	}
	return w
}

// endpoint never repeats the URL in a problem: it may hold credentials.
func (s *section) endpoint(key string) string {
	return s.called(key, "the URL has a fragment, which is never sent")
}

// called is a URL that is called; fragment, if not "", is what is wrong with one that has a fragment.
func (s *section) called(key, fragment string) string {
	v := s.Text(key)
	if v == "" {
		return ""
	}
	u, err := url.Parse(v)
	switch {
	case err != nil:
		s.Keyf(key, "not a valid URL")
		return ""
	case u.Scheme != "http" && u.Scheme != "https":
		s.Keyf(key, "want a URL that begins with http:// or https://")
	case u.Hostname() == "":
		s.Keyf(key, "the URL names no host")
	case u.User != nil:
		s.Keyf(key, "the URL holds a user or password; put an authorization header under headers, from env: or file:")
	case u.Fragment != "" && fragment != "":
		s.Keyf(key, "%s", fragment)
	}
	return v
}

func (s *section) webhookSecret(key string) Secret {
	secret := s.secret(key)
	s.checkSigning(secret, s.LineOf(key), document.Join(s.Path, key))
	return secret
}

// checkSigning reports a secret with which nothing can be signed.
func (s *section) checkSigning(secret Secret, line int, path string) {
	if v := secret.Reveal(); v != "" {
		if err := signing.Check(v); err != nil {
			s.reader.lackf(line, path, "the secret %s", err)
		}
	}
}

func isHostEntry(v string) bool {
	if addr, err := netip.ParseAddr(v); err == nil {
		return addr.Zone() == ""
	}
	if prefix, err := netip.ParsePrefix(v); err == nil {
		return !prefix.Addr().Is4In6()
	}
	return len(v) <= 253 && !strings.ContainsFunc(v, func(c rune) bool {
		return c <= ' ' || strings.ContainsRune(`/:@*?#%[]\`, c)
	})
}

// credentialHeaders carry nothing but credentials.
var credentialHeaders = []string{"authorization", "proxy-authorization", "cookie"}

func (s *section) headers() map[string]Secret {
	values := map[string]Secret{}
	for _, e := range s.Node.Entries {
		path := document.Join(s.Path, e.Key)
		name := strings.ToLower(e.Key)
		_, twice := values[name]
		switch {
		case !header.IsToken(name):
			s.Problemf(e.Line, path, "not a header's name")
		case strings.HasPrefix(name, "deed-") || strings.HasPrefix(name, "webhook-"):
			s.Problemf(e.Line, path, "deed sets this header itself")
		case twice:
			s.Problemf(e.Line, path, "given twice, in different case")
		}
		values[name] = s.headerValue(e, path, name)
	}
	return values
}

func (s *section) headerValue(e document.Entry, path, name string) Secret {
	n := s.Value(e, path)
	if n == nil {
		return Secret{}
	}
	v := s.TextOf(n, path)
	if v == "" {
		return Secret{}
	}
	value, isReference := s.reader.reference(n, path)
	if !isReference {
		if slices.Contains(credentialHeaders, name) {
			s.Problemf(n.Line, path, "want env:NAME or file:PATH; a secret must not stand in the file itself")
		}
		value = Secret{&v}
	}
	if strings.ContainsFunc(value.Reveal(), func(c rune) bool { return c < ' ' || c > '~' }) {
		s.Problemf(n.Line, path, "the value is not printable ASCII")
	}
	return value
}
