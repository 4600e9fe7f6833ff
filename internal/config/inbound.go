package config

import (
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/tenant"
)

// Public is the listener that everybody may reach.
type Public struct {
	Listen string // host:port
	URL    string // what stands before /in/SOURCE where it is reached

	Links               bool     // it says what signs them, whether or not this process has it
	LinkSecret          Secret   // signs the links that people are sent
	PreviousLinkSecrets []Secret // have signed those that are under way
}

// Source is where inbound messages come from, by the name in its URL.
type Source struct {
	Name string
	Type string // telegram, slack, whatsapp or webhook
	Line int

	Secret, PreviousSecret Secret
	VerifyToken            Secret // whatsapp

	Tenant      tenant.ID // zero: the default tenant
	Executor    Executor
	Unknown     string // link or deny
	Answer      string // executed or accepted; "": as the type has it
	Reply       ReplyBy
	Concurrency int
	Timeout     time.Duration

	Mail      Mail      // smtp
	Signature Signature // webhook
	Fields    Fields    // webhook
}

// Executor is what does what messages ask for: one of these.
type Executor struct {
	Topic      string
	Body       bool // the topic's messages have the body
	Webhook    string
	Secret     Secret // signs the webhook's requests
	Previous   Secret
	AllowHosts []string
}

// Mail is where a source listens for mail, and whom it believes.
type Mail struct {
	Listen    string
	Hello     string
	Addresses []string
	Trusted   []netip.Prefix
	Names     []string // of trusted relays in Authentication-Results
	TLS       *TLS
}

// ReplyBy is by what replies go.
type ReplyBy struct {
	Provider, Channel, To string

	Line int // of the provider
}

// CheckReplies reports each provider of replies that is neither in the file nor one of
// also. It is for who serves the file's providers: others may do so for who does not.
func (c *Config) CheckReplies(also ...string) error {
	names := slices.Sorted(maps.Keys(c.Providers))
	for _, a := range also {
		if !slices.Contains(names, a) {
			names = append(names, a)
		}
	}
	slices.Sort(names)
	r := &document.Reader{File: c.File}
	for _, s := range c.Sources {
		by := s.Reply.Provider
		switch {
		case by == "" || slices.Contains(names, by):
		case len(names) == 0:
			r.Problemf(s.Reply.Line, "sources."+s.Name+".reply.provider", "no provider is named %q: there are none; providers has those that this process serves", by)
		default:
			r.Problemf(s.Reply.Line, "sources."+s.Name+".reply.provider", "no provider is named %q%s; there are %s", by, r.DidYouMean(by, names), strings.Join(names, ", "))
		}
	}
	return r.Err()
}

// Signature is how a webhook source's requests are signed.
type Signature struct {
	Scheme    string // standard or hmac
	Header    string // hmac: where the signature stands
	Encoding  string // hmac: hex or base64
	Prefix    string // hmac: what stands before it
	Timestamp string // hmac: the header with the time, in seconds
	Signed    string // hmac: what is signed: {timestamp}, {header:NAME}, {body} and what stands between
	Unsigned  bool   // fields may stand in headers that are not signed
}

// Fields say where a webhook source's messages have what they need: header:NAME or $.a.b.
type Fields struct{ ID, Sender, ReplyTo, Text, Kind string }

// sourceName is a part of a URL's path.
var sourceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`) })

func (s *section) public() Public {
	p := Public{Listen: s.listen("listen"), URL: strings.TrimSuffix(s.Text("url"), "/")}
	s.lacks("listen", "the address and port that platforms reach, such as :8443")
	p.LinkSecret, p.PreviousLinkSecrets = s.webhookSecret("link_secret"), s.secrets("previous_link_secret")
	if p.Links = s.Has("link_secret"); p.Links {
		s.lacks("url", "where links lead, such as https://hooks.example.com")
	}
	if s.Has("previous_link_secret") {
		s.lacks("link_secret", "which previous_link_secret was before")
	}
	if p.URL != "" {
		u, err := url.Parse(p.URL)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			s.Keyf("url", "want what stands before /in/SOURCE, such as https://hooks.example.com")
		}
	}
	s.Done()
	return p
}

// sourceTypes has a function for each type, which reads the type's own keys.
var sourceTypes = map[string]func(*section, *Source){
	"telegram": func(s *section, _ *Source) {},
	"slack":    func(s *section, _ *Source) {},
	"whatsapp": func(s *section, v *Source) {
		s.lacks("verify_token", "which WhatsApp shows when the URL is entered there")
		v.VerifyToken = s.secret("verify_token")
	},
	"smtp": func(s *section, v *Source) {
		s.lacks("listen", "the address and port where the relay of your domain brings mail, such as 10.0.0.5:2525")
		s.lacks("addresses", "those that mail is taken for: addresses, or @domain")
		s.lacks("trusted", "the networks of the relays that are believed what they say of a mail, such as 10.0.0.0/8")
		s.lacks("names", "what these relays call themselves in Authentication-Results")
		v.Mail.Listen, v.Mail.Hello = s.listen("listen"), s.Text("hello")
		s.Texts("addresses", func(a string, line int) {
			if at := strings.LastIndexByte(a, '@'); at < 0 || at == len(a)-1 {
				s.Problemf(line, document.Join(s.Path, "addresses"), "%q is neither an address nor @domain", a)
			}
			v.Mail.Addresses = append(v.Mail.Addresses, a)
		})
		s.Texts("trusted", func(text string, line int) {
			p, err := netip.ParsePrefix(text)
			if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
				p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			if err != nil {
				s.Problemf(line, document.Join(s.Path, "trusted"), "%q is no address and no network such as 10.0.0.0/8", text)
			}
			v.Mail.Trusted = append(v.Mail.Trusted, p)
		})
		s.Texts("names", func(n string, _ int) { v.Mail.Names = append(v.Mail.Names, n) })
		v.Mail.TLS = s.tls("tls")
	},
	"webhook": func(s *section, v *Source) {
		v.Signature = Signature{
			Scheme: s.Choice("scheme", "standard", "hmac"), Header: s.Text("header"), Encoding: s.Choice("encoding", "hex", "base64"), Prefix: s.Text("prefix"),
			Timestamp: s.Text("timestamp"), Signed: s.Text("signed"), Unsigned: s.truth("unsigned"),
		}
		for _, key := range []string{"encoding", "prefix", "signed"} {
			if s.Has(key) && v.Signature.Scheme != "hmac" {
				s.Keyf(key, "it is for scheme: hmac")
			}
		}
		v.Fields = Fields{ID: s.Text("id"), Sender: s.Text("sender"), ReplyTo: s.Text("reply_to"), Text: s.Text("text"), Kind: s.Text("kind")}
		s.lacks("sender", "where a message says who wrote it, such as $.from")
	},
}

func (s *section) source(name string) Source {
	v := Source{Name: name, Line: s.Line}
	if !sourceName().MatchString(name) {
		s.Problemf(s.Line, s.Path, "a source's name stands in its URL: of A-Z a-z 0-9 . _ -, 1 to 100 characters")
	}
	types := slices.Sorted(maps.Keys(sourceTypes))
	if !s.Has("type") {
		s.Problemf(s.Line, s.Path, "the source has no type; the types are %s", strings.Join(types, ", "))
		return v
	}
	v.Type = s.Text("type")
	read, ok := sourceTypes[v.Type]
	if !ok {
		if v.Type != "" {
			s.Keyf("type", "no source type is called %q%s; the types are %s", v.Type, s.DidYouMean(v.Type, types), strings.Join(types, ", "))
		}
		return v // which keys it may have is not known
	}
	v.Secret, v.PreviousSecret = s.secret("secret"), s.secret("previous_secret")
	if v.Type != "smtp" {
		s.lacks("secret", "by which it is known that the platform has sent a request")
	}
	for _, key := range []string{"secret", "previous_secret"} {
		if v.Type == "smtp" && s.Has(key) {
			s.Keyf(key, "a source of mail has none: it believes the relays in trusted; leave it out")
		}
	}
	if text := s.Text("tenant"); text != "" {
		id, err := tenant.Parse(text)
		if err != nil {
			s.Keyf("tenant", "not a tenant's id, a UUID; deed tenant list has them")
		}
		v.Tenant = id
	}
	v.Unknown, v.Answer = s.Choice("unknown", "link", "deny"), s.Choice("answer", "executed", "accepted")
	v.Concurrency, v.Timeout = s.Number("concurrency", 1, 1000), s.Duration("timeout", time.Millisecond, time.Hour)
	s.lacks("executor", "{topic: NAME} or {webhook: URL}, which says what becomes of messages")
	if e := s.sub("executor"); e != nil {
		v.Executor = e.executor()
	}
	if r := s.sub("reply"); r != nil {
		r.lacks("provider", "through which replies go")
		v.Reply = ReplyBy{Provider: r.Text("provider"), Channel: r.Choice("channel", "email", "sms", "voice", "social", "chat", "webhook"), To: r.Text("to"), Line: r.LineOf("provider")}
		r.Done()
	}
	read(s, &v)
	s.Done()
	return v
}

// lacks reports a key that must be there.
func (s *section) lacks(key, what string) {
	if !s.Has(key) {
		s.Problemf(s.Line, s.Path, "there is no %s: %s", key, what)
	}
}

func (s *section) executor() Executor {
	e := Executor{Topic: s.Text("topic")}
	if s.Has("topic") == s.Has("webhook") {
		s.Problemf(s.Line, s.Path, "want topic: NAME or webhook: URL, one of them")
	}
	if s.Has("topic") {
		if err := limits.PublishedTopic(e.Topic); e.Topic != "" && err != nil {
			s.Keyf("topic", "%s", err)
		}
		e.Body = s.truth("body")
	} else if s.Has("webhook") {
		e.Webhook, e.Secret, e.Previous = s.endpoint("webhook"), s.webhookSecret("secret"), s.webhookSecret("previous_secret")
		s.lacks("secret", "which signs the webhook's requests")
		s.Texts("allow_hosts", func(v string, line int) {
			if !isHostEntry(v) {
				s.Problemf(line, document.Join(s.Path, "allow_hosts"), "%q is not a host name, IP address or CIDR range", v)
			}
			e.AllowHosts = append(e.AllowHosts, v)
		})
	}
	s.Done()
	return e
}

// truth reads true or false.
func (s *section) truth(key string) bool {
	n := s.Get(key)
	if n == nil {
		return false
	}
	if n.Kind != document.Boolean {
		s.Problemf(n.Line, document.Join(s.Path, key), "want true or false, got %s", n.Got())
	}
	return n.Text == "true"
}

// inbound reads for how long messages are kept.
func (s *section) inbound() time.Duration {
	d := s.Duration("retention", 8*24*time.Hour, 100*365*24*time.Hour)
	s.Done()
	return d
}
