package config

import (
	"maps"
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/tenant"
)

// Outbox is the section channels.outbox: how deliveries are attempted. The
// values are texts, since each may also come from a flag or the environment;
// "" is what the file does not say.
type Outbox struct {
	Enabled             string // true or false
	PollIntervalSeconds string
	ClaimBatchSize      string
	LockTimeoutSeconds  string
	MaxAttempts         string
	BaseRetrySeconds    string
	JitterMin           string
	JitterMax           string
	RetentionDays       string

	ContentRetentionDays string
}

func (s *section) outbox() (o Outbox) {
	if e, ok := s.Entry("enabled"); ok {
		if n := s.Value(e, document.Join(s.Path, "enabled")); n != nil && n.Kind == document.Boolean {
			o.Enabled = n.Text
		} else if n != nil {
			s.Problemf(n.Line, document.Join(s.Path, "enabled"), "want true or false, got %s", n.Kind)
		}
	}
	o.PollIntervalSeconds = s.decimalText("poll_interval_seconds", 0.001, 3600)
	o.ClaimBatchSize = s.numberText("claim_batch_size", 1, 10000)
	o.LockTimeoutSeconds = s.decimalText("lock_timeout_seconds", limits.Lease.Least.Seconds(), limits.Lease.Most.Seconds())
	o.MaxAttempts = s.numberText("max_attempts", limits.Attempts.Least, limits.Attempts.Most)
	o.BaseRetrySeconds = s.decimalText("base_retry_seconds", limits.Backoff.Least.Seconds(), limits.Backoff.Most.Seconds())
	o.JitterMin = s.decimalText("jitter_min", 0.01, 2)
	o.JitterMax = s.decimalText("jitter_max", 0.01, 2)
	o.RetentionDays = s.numberText("retention_days", 1, 36500)
	o.ContentRetentionDays = s.numberText("content_retention_days", 2, 36500)
	s.Done()
	return o
}

func (s *section) numberText(key string, least, most int) string {
	if v := s.Number(key, least, most); v != 0 {
		return strconv.Itoa(v)
	}
	return ""
}

func (s *section) decimalText(key string, least, most float64) string {
	if v := s.decimal(key, least, most); v != 0 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return ""
}

// decimal reads a number, whole or not.
func (s *section) decimal(key string, least, most float64) float64 {
	n := s.Get(key)
	if n == nil {
		return 0
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	if (n.Kind != document.Integer && n.Kind != document.Float) || err != nil {
		s.Problemf(n.Line, document.Join(s.Path, key), "want a number from %s to %s, got %s", plain(least), plain(most), n.Got())
		return 0
	}
	if v < least || v > most {
		s.Problemf(n.Line, document.Join(s.Path, key), "%s is not from %s to %s", n.Text, plain(least), plain(most))
		return 0
	}
	return v
}

// plain writes a number as people do, without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Provider is a provider of deliveries, by the name that they give.
type Provider struct {
	Name string
	Type string // bluesky, mastodon, postmark, resend, sendgrid, ses, slack, smtp, stub, telegram, twilio, webhook or whatsapp
	Line int

	Concurrency int
	PerLane     int
	Hanging     int // negative: none
	Timeout     time.Duration
	GiveUpAfter time.Duration
	Defer       time.Duration
	Rate        float64 // calls a second, of all processes together
	Burst       float64
	Lanes       map[string]float64 // calls a second, by lane
	From        string
	FromAllowed []string // addresses, @domains, or *
	Sandbox     string   // an address, or a URL
	Verified    []string // domains
	Engagement  bool     // who has opened a message, and clicked in it, is kept

	Tenants []tenant.ID // whose deliveries are made; none: all

	HeadersAllowed []string // names, beginnings such as X-Shop-*, or *
	Account        string   // what the account is called; default: the adapter's name for it

	Address  string // smtp: host:port
	Security string // smtp: starttls, tls or none
	User     string
	Password Secret
	Hello    string
	TLS      *TLS

	ReturnPath          string // smtp: with {id} in it
	PreviousEventSecret Secret // smtp

	Endpoint      string // bluesky, mastodon, resend, ses, slack, telegram, twilio, whatsapp
	APIKey        Secret // resend, sendgrid
	EventKey      string // sendgrid: public
	Activity      bool   // sendgrid: is searched for what is in doubt
	Batch         int    // resend: the most e-mails of a call
	EventSecret   Secret // resend: of the webhook by which it says what became of e-mails; smtp: of the return path
	Token         Secret // mastodon, slack, telegram, whatsapp
	PhoneNumberID string // whatsapp

	SandboxToken    Secret // mastodon: of the account that is the sandbox
	MaxCharacters   int
	SandboxPassword Secret // bluesky

	Fail map[string]float64 // stub: which part of the calls, by what is answered

	MessageStream string // postmark
	EventUser     string
	EventPassword Secret

	Region           string // ses
	AccessKeyID      Secret
	SecretAccessKey  Secret
	SessionToken     Secret
	ConfigurationSet string
	EventTopic       string // its ARN

	AccountSID          string // twilio
	AuthToken           Secret
	APIKeySID           string
	APIKeySecret        Secret
	MessagingServiceSID string
	StatusCallback      string
	EventToken          Secret
	LookUpCalls         bool

	Secret         Secret // webhook
	PreviousSecret Secret
	Hosts          []string // [http://](name|*.name)[:port]
	AllowHosts     []string
	Headers        map[string]Secret
	DropsRepeats   time.Duration
}

// HasEvents reports whether the provider's service can say what became of messages.
func (p Provider) HasEvents() bool {
	callback, err := url.Parse(p.StatusCallback) // which may lead elsewhere
	return p.EventSecret.Reveal() != "" && p.Type != "smtp" || p.EventUser != "" || p.EventKey != "" || p.EventTopic != "" || err == nil && strings.HasSuffix(callback.Path, "/events/"+p.Name)
}

// slackChannel is where a Slack app writes to.
var slackChannel = regexp.MustCompile(`^([CDG][A-Z0-9]{2,30}(/[0-9]{1,12}\.[0-9]{1,8})?|[TE][A-Z0-9]{2,30}:[UW][A-Z0-9]{2,30})$`)

// mastodonAccount is who posts at an instance.
var mastodonAccount = regexp.MustCompile(`^@[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]+)?$`)

// blueskyAccount is a handle or a DID.
var blueskyAccount = regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?|did:[a-z]+:[A-Za-z0-9._:%-]*[A-Za-z0-9._-])$`)

// whatsAppUser is whom a number writes to.
var whatsAppUser = regexp.MustCompile(`^(\+?[1-9][0-9]{6,14}|[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128})$`)

// phoneNumber is whom Twilio writes to and calls.
var phoneNumber = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// telegramChat is whom a bot writes to.
var telegramChat = regexp.MustCompile(`^(-?[1-9][0-9]{0,18}|@[A-Za-z][A-Za-z0-9_]{3,31})(/[1-9][0-9]{0,9})?$`)

// providerTypes has a function for each type, which reads the type's own keys.
var providerTypes = map[string]func(*section, *Provider){
	"smtp": func(s *section, p *Provider) {
		s.want("address")
		p.Address = s.Text("address")
		if host, port, err := net.SplitHostPort(p.Address); p.Address != "" && (err != nil || host == "" || port == "") {
			s.Keyf("address", "%q is not an address and a port such as smtp.example.com:587", p.Address)
		}
		p.Security = s.Choice("security", "starttls", "tls", "none")
		p.User, p.Password, p.Hello = s.Text("user"), s.secret("password"), s.Text("hello")
		if s.Has("user") != s.Has("password") {
			s.Problemf(s.Line, s.Path, "user and password go together")
		}
		p.TLS = s.tls("tls")
		p.ReturnPath, p.EventSecret = s.Text("return_path"), s.webhookSecret("event_secret")
		if s.Has("return_path") != s.Has("event_secret") {
			s.Problemf(s.Line, s.Path, "return_path and event_secret go together")
		}
		if p.PreviousEventSecret = s.webhookSecret("previous_event_secret"); s.Has("previous_event_secret") {
			s.lacks("event_secret", "which previous_event_secret was before")
		}
		p.From, p.Sandbox, p.Account = s.mailbox("from"), s.address("sandbox"), s.Text("account")
		p.FromAllowed, p.HeadersAllowed, p.Verified = s.senders(), s.headerNames(), s.domains()
	},
	"bluesky": func(s *section, p *Provider) {
		s.want("account")
		s.want("password")
		p.Account, p.Password, p.Endpoint = s.matching("account", blueskyAccount, asBluesky), s.secret("password"), s.endpoint("endpoint")
		p.Sandbox, p.SandboxPassword = s.matching("sandbox", blueskyAccount, asBluesky), s.secret("sandbox_password")
		if s.Has("sandbox") != s.Has("sandbox_password") {
			s.Problemf(s.Line, s.Path, "sandbox and sandbox_password go together")
		}
		if p.Sandbox != "" && strings.EqualFold(p.Sandbox, p.Account) {
			s.Keyf("sandbox", "it is the account, whose posts are public")
		}
	},
	"mastodon": func(s *section, p *Provider) {
		s.want("endpoint")
		s.want("account")
		s.want("token")
		p.Endpoint, p.Token, p.MaxCharacters = s.endpoint("endpoint"), s.secret("token"), s.Number("max_characters", 1, 1<<20)
		p.Account = s.matching("account", mastodonAccount, asMastodon)
		p.Sandbox, p.SandboxToken = s.matching("sandbox", mastodonAccount, asMastodon), s.secret("sandbox_token")
		if s.Has("sandbox") != s.Has("sandbox_token") && !strings.EqualFold(p.Sandbox, p.Account) {
			s.Problemf(s.Line, s.Path, "sandbox and sandbox_token go together, unless the sandbox is the account")
		}
	},
	"postmark": func(s *section, p *Provider) {
		s.want("server_token")
		p.Token, p.MessageStream, p.Endpoint = s.secret("server_token"), s.Text("message_stream"), s.endpoint("endpoint")
		p.EventUser, p.EventPassword = s.Text("event_user"), s.secret("event_password")
		if s.Has("event_user") != s.Has("event_password") {
			s.Problemf(s.Line, s.Path, "event_user and event_password go together")
		}
		p.From, p.Sandbox, p.Account = s.mailbox("from"), s.address("sandbox"), s.Text("account")
		p.FromAllowed, p.HeadersAllowed, p.Verified = s.senders(), s.headerNames(), s.domains()
	},
	"resend": func(s *section, p *Provider) {
		s.want("api_key")
		p.APIKey, p.Endpoint = s.secret("api_key"), s.endpoint("endpoint")
		p.EventSecret, p.Batch = s.webhookSecret("event_secret"), s.Number("batch", 1, 100)
		p.From, p.Sandbox, p.Account = s.mailbox("from"), s.address("sandbox"), s.Text("account")
		p.FromAllowed, p.HeadersAllowed, p.Verified = s.senders(), s.headerNames(), s.domains()
	},
	"sendgrid": func(s *section, p *Provider) {
		s.want("api_key")
		p.APIKey, p.EventKey, p.Endpoint, p.Activity = s.secret("api_key"), s.Text("event_key"), s.endpoint("endpoint"), s.truth("activity")
		p.From, p.Sandbox, p.Account = s.mailbox("from"), s.address("sandbox"), s.Text("account")
		p.FromAllowed, p.HeadersAllowed, p.Verified = s.senders(), s.headerNames(), s.domains()
	},
	"ses": func(s *section, p *Provider) {
		s.want("region")
		s.want("access_key_id")
		s.want("secret_access_key")
		p.Region, p.AccessKeyID, p.SecretAccessKey, p.SessionToken = s.Text("region"), s.secret("access_key_id"), s.secret("secret_access_key"), s.secret("session_token")
		p.ConfigurationSet, p.EventTopic, p.Endpoint = s.Text("configuration_set"), s.Text("event_topic"), s.endpoint("endpoint")
		p.From, p.Sandbox, p.Account = s.mailbox("from"), s.address("sandbox"), s.Text("account")
		p.FromAllowed, p.HeadersAllowed, p.Verified = s.senders(), s.headerNames(), s.domains()
	},
	"slack": func(s *section, p *Provider) {
		s.want("token")
		p.Token, p.Endpoint, p.Account = s.secret("token"), s.endpoint("endpoint"), s.Text("account")
		if p.Sandbox = s.Text("sandbox"); p.Sandbox != "" && !slackChannel.MatchString(p.Sandbox) {
			s.Keyf("sandbox", "want the id of a channel such as C024BE91L, with /THREAD_TS behind it or not, or TEAM:USER, a person")
		}
	},
	"stub": func(s *section, p *Provider) {
		p.Verified = s.domains()
		d := s.sub("fail")
		if d == nil {
			return
		}
		p.Fail = map[string]float64{}
		for _, e := range d.Node.Entries {
			p.Fail[e.Key] = d.decimal(e.Key, 0, 1)
		}
		d.Done()
	},
	"telegram": func(s *section, p *Provider) {
		s.want("token")
		p.Token, p.Endpoint = s.secret("token"), s.endpoint("endpoint")
		if p.Sandbox = s.Text("sandbox"); p.Sandbox != "" && !telegramChat.MatchString(p.Sandbox) {
			s.Keyf("sandbox", "want a chat's number in quotes, or a channel's @name, with /TOPIC behind it or not")
		}
	},
	"twilio": func(s *section, p *Provider) {
		s.want("account_sid")
		p.AccountSID, p.AuthToken = s.Text("account_sid"), s.secret("auth_token")
		p.APIKeySID, p.APIKeySecret = s.Text("api_key_sid"), s.secret("api_key_secret")
		p.From, p.MessagingServiceSID, p.Endpoint = s.Text("from"), s.Text("messaging_service_sid"), s.endpoint("endpoint")
		p.StatusCallback, p.EventToken, p.LookUpCalls = s.called("status_callback", ""), s.secret("event_token"), s.truth("look_up_calls")
		if s.Has("api_key_sid") != s.Has("api_key_secret") || s.Has("auth_token") == s.Has("api_key_sid") {
			s.Problemf(s.Line, s.Path, "want auth_token, or api_key_sid and api_key_secret")
		}
		if !s.Has("from") && !s.Has("messaging_service_sid") {
			s.Problemf(s.Line, s.Path, "the provider has neither from nor messaging_service_sid")
		}
		if p.Sandbox = s.Text("sandbox"); p.Sandbox != "" && !phoneNumber.MatchString(p.Sandbox) {
			s.Keyf("sandbox", "want a number with + and its country's code, in quotes")
		}
	},
	"whatsapp": func(s *section, p *Provider) {
		s.want("token")
		s.want("phone_number_id")
		p.Token, p.Endpoint, p.PhoneNumberID = s.secret("token"), s.endpoint("endpoint"), s.Text("phone_number_id")
		if p.Sandbox = s.Text("sandbox"); p.Sandbox != "" && !whatsAppUser.MatchString(p.Sandbox) {
			s.Keyf("sandbox", "want a number with its country's code in quotes, or a business-scoped user id")
		}
	},
	"webhook": func(s *section, p *Provider) {
		s.want("secret")
		p.Secret, p.PreviousSecret = s.webhookSecret("secret"), s.webhookSecret("previous_secret")
		s.Texts("allow_hosts", func(v string, line int) {
			if !isHostEntry(v) {
				s.Problemf(line, document.Join(s.Path, "allow_hosts"), "%q is not a host name, IP address or CIDR range", v)
			}
			p.AllowHosts = append(p.AllowHosts, v)
		})
		s.Texts("hosts", func(v string, _ int) { p.Hosts = append(p.Hosts, v) })
		s.wantEntry("hosts")
		if h := s.sub("headers"); h != nil {
			if p.Headers = h.headers(); !s.Has("hosts") {
				s.Keyf("headers", `whoever reserves a delivery names its URL, and would be sent these; say which hosts may have them, such as hosts: [hooks.example.com, "*.example.org"]`)
			}
		}
		p.DropsRepeats = s.Duration("drops_repeats", time.Minute, 30*24*time.Hour)
		p.Sandbox = s.endpoint("sandbox")
	},
}

const (
	asBluesky  = "want a handle such as shop.example.com, or a DID"
	asMastodon = "want an account such as @name@mastodon.example, in quotes"
)

// matching reads a text that has a form.
func (s *section) matching(key string, form *regexp.Regexp, want string) string {
	v := s.Text(key)
	if v != "" && !form.MatchString(v) {
		s.Keyf(key, "%s", want)
	}
	return v
}

func (s *section) want(key string) {
	if !s.Has(key) {
		s.Problemf(s.Line, s.Path, "the provider has no %s", key)
	}
}

// wantEntry refuses an empty list, which would be no bound at all.
func (s *section) wantEntry(key string) {
	if e, ok := s.Entry(key); ok && e.Value.Kind == document.List && len(e.Value.Items) == 0 {
		s.Keyf(key, "the list is empty; leave the key out to bound nothing")
	}
}

// address reads an address alone, without a name.
func (s *section) address(key string) string {
	v := s.mailbox(key)
	if a, err := mail.ParseAddress(v); err == nil && a.Address != v {
		s.Keyf(key, "more than an e-mail address: leave out the name")
	}
	return v
}

func (s *section) mailbox(key string) string {
	v := s.Text(key)
	if v == "" {
		return ""
	}
	if _, err := mail.ParseAddress(v); err != nil {
		s.Keyf(key, "not an e-mail address")
	}
	return v
}

// senders reads from_allowed.
func (s *section) senders() (list []string) {
	s.Texts("from_allowed", func(v string, line int) {
		address := v
		if strings.HasPrefix(v, "@") {
			address = "a" + v
		}
		if a, err := mail.ParseAddress(address); v != "*" && (err != nil || a.Address != address || strings.Contains(v, "*")) {
			s.Problemf(line, document.Join(s.Path, "from_allowed"), "%q is not an address, a domain such as @example.com, or *", v)
		}
		list = append(list, v)
	})
	return list
}

// domains reads verified_domains.
func (s *section) domains() (list []string) {
	s.Texts("verified_domains", func(v string, line int) {
		if a, err := mail.ParseAddress("a@" + v); err != nil || a.Address != "a@"+v || strings.Contains(v, "*") {
			s.Problemf(line, document.Join(s.Path, "verified_domains"), "%q is not a domain, such as example.com", v)
		}
		list = append(list, v)
	})
	s.wantEntry("verified_domains")
	return list
}

// headerNames reads headers_allowed.
func (s *section) headerNames() (list []string) {
	s.Texts("headers_allowed", func(v string, line int) {
		if name := strings.TrimSuffix(v, "*"); v != "*" && (!header.IsToken(name) || strings.Contains(name, "*")) {
			s.Problemf(line, document.Join(s.Path, "headers_allowed"), "%q is not a header's name, a beginning such as X-Shop-*, or *", v)
		}
		list = append(list, v)
	})
	return list
}

func (s *section) provider(name string) Provider {
	if err := limits.Name("provider", name); err != nil {
		s.Problemf(s.Line, s.Path, "%s", err)
	}
	p := Provider{Name: name, Line: s.Line}
	types := slices.Sorted(maps.Keys(providerTypes))
	if !s.Has("type") {
		s.Problemf(s.Line, s.Path, "the provider has no type; the types are %s", strings.Join(types, ", "))
		return p
	}
	p.Type = s.Text("type")
	read, ok := providerTypes[p.Type]
	if !ok {
		if p.Type != "" {
			s.Keyf("type", "no provider type is called %q%s; the types are %s", p.Type, s.DidYouMean(p.Type, types), strings.Join(types, ", "))
		}
		return p // which keys it may have is not known
	}
	p.Concurrency, p.PerLane = s.Number("concurrency", 1, 10000), s.Number("per_lane", 1, 10000)
	if s.Has("hanging") {
		if p.Hanging = s.Number("hanging", 0, 20000); p.Hanging == 0 {
			p.Hanging = -1
		}
	}
	s.Texts("tenants", func(v string, line int) {
		id, err := tenant.Parse(v)
		if err != nil {
			s.Problemf(line, document.Join(s.Path, "tenants"), "not a tenant's id, a UUID; deed tenant list has them")
		}
		p.Tenants = append(p.Tenants, id)
	})
	s.wantEntry("tenants")
	p.Timeout = s.Duration("timeout", time.Second, time.Hour)
	p.GiveUpAfter, p.Defer = s.Duration("give_up_after", time.Minute, 30*24*time.Hour), s.Duration("defer", time.Second, time.Hour)
	p.Rate, p.Burst = s.decimal("rate", 0.001, 1e6), s.decimal("burst", 1, 1e6)
	p.Engagement = s.truth("engagement")
	if d := s.sub("lanes"); d != nil {
		p.Lanes = map[string]float64{}
		for _, e := range d.Node.Entries {
			p.Lanes[strings.ToLower(e.Key)] = d.decimal(e.Key, 0, 1e6)
		}
		d.Done()
	}
	read(s, &p)
	s.Done()
	return p
}
