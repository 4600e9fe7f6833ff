// Package config reads deed.yaml: which topics there are, which sinks each one
// goes to, and how a sink is reached.
//
//	database_url: env:DATABASE_URL        # or postgres://…, or file:PATH
//	listen: 127.0.0.1:8420
//	log: {level: info, format: text}      # debug, info, warn, error; text, json
//	worker: relay-1
//	environment: production               # the installation's, from the first start on
//	on_new_cluster: hold                  # or continue: see docs/operations.md
//	topics:
//	  orders: {sink: hooks, max_attempts: 5, lease: 30s, backoff: 1s, from: beginning, concurrency: 16, batch: 200}
//	  events: {sink: log, mode: stream, lanes: 4, ordering: key, retention: 7d}   # mode: queue; ordering: none
//	  audit:  {sinks: [hooks, printer]}
//	sinks:
//	  hooks:
//	    type: webhook
//	    url: https://example.com/hooks
//	    secret: env:HOOK_SECRET           # or file:PATH, never inline
//	    previous_secret: file:hook.old
//	    allow_hosts: [127.0.0.1]
//	    body: raw                         # or cloudevents
//	    timeout: 15s
//	    headers: {x-api-key: env:HOOK_API_KEY}
//	    breaker: {failures: 5, pause: 1s, max_pause: 30s}
//	    batch: 100                        # post messages together; else one a request
//	  stream:
//	    type: nats
//	    url: nats://nats-1:4222,nats://nats-2:4222   # with a password: env:NAME or file:PATH
//	    subject: events.{topic}           # {topic}, {key}, {type}
//	    creds: file:deed.creds            # or token: env:NATS_TOKEN, or user: and password: env:…
//	    tls: {ca: ca.pem, cert: deed.pem, key: deed.key}
//	    timeout: 10s
//	    max_pending: 1000
//	    batch: 100
//	  log:
//	    type: kafka
//	    brokers: [kafka-1:9092, kafka-2:9092]
//	    topic: events                     # else the message's own
//	    sasl: {mechanism: scram-sha-256, user: deed, password: env:KAFKA_PASSWORD}
//	    tls: {}                           # the system's authorities
//	    compression: none                 # or gzip, snappy, lz4, zstd
//	    timeout: 10s
//	    max_bytes: 1000012
//	    max_pending: 10000
//	    batch: 100
//	  printer: {type: print}
//	erasures: {file: erasures.ndjson}       # or topic: NAME; see docs/gdpr.md
//	audit: {key: file:audit.pem}            # relays seal the audit log: docs/operations.md
//	runs: {retention: 90d, plans: {hosts: [plans.example]}}   # keep the snapshots of runs, and runs for so long: docs/runs.md
//	channels:
//	  outbox:                             # deliveries: docs/deliveries.md
//	    enabled: true
//	    poll_interval_seconds: 1
//	    claim_batch_size: 200
//	    lock_timeout_seconds: 60
//	    max_attempts: 5
//	    base_retry_seconds: 5
//	    jitter_min: 0.5
//	    jitter_max: 1
//	    retention_days: 365               # else kept for ever
//	    content_retention_days: 90        # of files that nothing needs; else 30
//	providers:
//	  mail:
//	    type: smtp
//	    address: smtp.example.com:587
//	    security: starttls                # or tls, none
//	    user: deed
//	    password: env:SMTP_PASSWORD
//	    from: Shop <shop@example.com>
//	    rate: 20                          # a second, all processes together
//	    lanes: {gmail.com: 5}
//	  api: {type: resend, api_key: env:RESEND_API_KEY, sandbox: me@example.com}
//	  hooks: {type: webhook, secret: env:HOOK_SECRET, drops_repeats: 24h}
//	public: {listen: ":8443", url: "https://hooks.example.com"}   # for sources: docs/inbound.md
//	inbound: {retention: 90d}
//	sources:
//	  support:                            # at /in/support
//	    type: telegram                    # or slack, whatsapp, webhook
//	    secret: env:TG_SECRET
//	    executor: {topic: support.in}     # or {webhook: "https://inner.example/answer", secret: env:ANSWER_SECRET}
//	    unknown: link                     # or deny
//	    answer: executed                  # or accepted
//	    reply: {provider: hooks, to: "https://inner.example/outbox"}
//
// Everything but a topic's sink, a sink's type, a webhook's url and secret, a
// nats sink's url and a kafka sink's brokers may be left out. All problems of a file are reported at once, each with its
// line; a key that means nothing is one of them. No problem's text holds the
// value of a secret.
package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/internal/limits"
)

// Config is what a deed.yaml says. A zero value means that it says nothing.
type Config struct {
	File string // its name

	lacking []lack

	// DatabaseURL may hold a password.
	DatabaseURL string

	Listen string // host:port
	Worker string
	// Environment is the installation's; OnNewCluster is continue or hold.
	Environment, OnNewCluster string
	LogLevel                  string // debug, info, warn or error
	LogFormat                 string // text or json

	// Dev is what deed dev is told, of which relays take nothing.
	Dev Dev

	// Erasures is where they are recorded.
	Erasures Erasures

	// Audit says how relays seal the audit log.
	Audit Audit
	// Campaigns says whether relays expand and end jobs of campaigns.
	Campaigns Campaigns
	// Runs says whether relays keep the snapshots of runs.
	Runs Runs

	// Topics are in the order of the file.
	Topics []Topic

	// Sinks are by name. Each is used by a topic.
	Sinks map[string]Sink

	// Outbox says how deliveries are attempted, through Providers, by name.
	Outbox    Outbox
	Providers map[string]Provider

	// Public is the listener of the Sources, by name; Retention is for how long their
	// messages are kept.
	Public           Public
	Sources          map[string]Source
	InboundRetention time.Duration
}

// Load reads the file at path. Secrets come from the environment and from
// files; a relative file: is taken from the folder of path.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	return Parse(path, data, os.LookupEnv, os.ReadFile)
}

// Parse reads data, the text of the file called name. Env and readFile resolve
// env:NAME and file:PATH. The error joins all problems in the order of their
// lines, each a line such as
//
//	deed.yaml:12: topics.orders.sink: no sink is named "hookz" (did you mean "hooks"?)
//
// A secret that is not there, or is none, is no such problem: see [Config.Lacks].
func Parse(name string, data []byte, env func(string) (string, bool), readFile func(string) ([]byte, error)) (*Config, error) {
	r := &reader{Reader: &document.Reader{File: name}, env: env, readFile: readFile}
	var c *Config
	if root := r.Parse(data, "it wants at least a topic and its sink, such as\n"+
		"  topics: {orders: {sink: printer}}\n"+
		"  sinks: {printer: {type: print}}", "topics and sinks"); root != nil {
		c = r.config(root)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if c != nil {
		c.lacking = r.lacking
	}
	return c, nil
}

// Lacks says which secrets of these parts of the file are not there, or are none:
// environment variables that are not set, files that this machine does not have. A part is
// a path such as sinks.NAME, providers.NAME, sources.NAME, public or database_url; none is
// all of them, but for database_url. Who needs a part asks before it relies on what stands there.
func (c *Config) Lacks(parts ...string) error {
	var problems []*document.Problem
	for _, l := range c.lacking {
		if slices.Contains(parts, l.part) || len(parts) == 0 && l.part != "database_url" {
			problems = append(problems, l.Problem)
		}
	}
	return document.InOrder(problems)
}

func (r *reader) config(root *document.Node) *Config {
	s := &section{Section: &document.Section{Reader: r.Reader, Line: 1, Node: root}, reader: r}
	c := &Config{File: r.File, Sinks: map[string]Sink{}}
	c.DatabaseURL = s.databaseURL("database_url")
	c.Listen = s.listen("listen")
	c.Worker = s.Text("worker")
	if c.Environment = s.Text("environment"); len(c.Environment) > 100 {
		s.Problemf(s.Line, "environment", "it is over 100 characters")
	}
	c.OnNewCluster = s.Choice("on_new_cluster", "continue", "hold")
	if log := s.sub("log"); log != nil {
		c.LogLevel = log.Choice("level", "debug", "info", "warn", "error")
		c.LogFormat = log.Choice("format", "text", "json")
		log.Done()
	}
	if dev := s.sub("dev"); dev != nil {
		c.Dev = dev.dev()
	}
	if e := s.sub("erasures"); e != nil {
		c.Erasures = e.erasures()
	}
	if a := s.sub("audit"); a != nil {
		c.Audit = a.audit()
	}
	if m := s.sub("campaigns"); m != nil {
		c.Campaigns = Campaigns{
			Enabled: m.truth("enabled"), PollInterval: m.Duration("poll_interval", 10*time.Millisecond, time.Hour), Heartbeat: m.Duration("heartbeat", 10*time.Second, 24*time.Hour),
			Retention: m.Duration("retention", 48*time.Hour, 100*365*24*time.Hour),
		}
		m.Done()
	}
	if r := s.sub("runs"); r != nil {
		c.Runs = r.runs()
	}
	var uses []use
	s.sections("topics", func(name string, sub *section) {
		t, u := sub.topic(name)
		c.Topics = append(c.Topics, t)
		uses = append(uses, u...)
	})
	s.sections("sinks", func(name string, sub *section) { c.Sinks[name] = sub.sink(name) })
	if channels := s.sub("channels"); channels != nil {
		if o := channels.sub("outbox"); o != nil {
			c.Outbox = o.outbox()
		}
		channels.Done()
	}
	s.sections("providers", func(name string, sub *section) {
		if c.Providers == nil {
			c.Providers = map[string]Provider{}
		}
		c.Providers[name] = sub.provider(name)
	})
	c.readInbound(s)
	s.Done()
	s.match(uses)
	return c
}

// readInbound reads what messages come from. With a source deliveries are made unless
// the file says otherwise: its replies are some.
func (c *Config) readInbound(s *section) {
	if p := s.sub("public"); p != nil {
		c.Public = p.public()
	}
	if i := s.sub("inbound"); i != nil {
		c.InboundRetention = i.inbound()
	}
	s.sections("sources", func(name string, sub *section) {
		if c.Sources == nil {
			c.Sources = map[string]Source{}
		}
		c.Sources[name] = sub.source(name)
	})
	if len(c.Sources) > 0 && c.Outbox.Enabled == "" {
		c.Outbox.Enabled = "true"
	}
}

// Dev is a project's own deed dev.
type Dev struct {
	Data                 string // the folder of its PostgreSQL
	Port                 int    // of that; 0: a free one, which it keeps
	CatchSMTP, CatchHTTP string // host:port
}

func (s *section) dev() Dev {
	d := Dev{
		Data:      s.Text("data"),
		Port:      s.Number("port", 1, 65535),
		CatchSMTP: s.listen("catch_smtp"),
		CatchHTTP: s.listen("catch_http"),
	}
	if d.Data != "" && !filepath.IsAbs(d.Data) { // as file: is
		d.Data = filepath.Join(filepath.Dir(s.File), d.Data)
	}
	s.Done()
	return d
}

// Campaigns is what relays do for campaigns; zero durations are the worker's own.
type Campaigns struct {
	Enabled                 bool
	PollInterval, Heartbeat time.Duration
	Retention               time.Duration // for how long deliveries of runs that have ended are kept; 0: for ever
}

// Audit is how relays seal the audit log; a zero duration is the sealer's own.
type Audit struct {
	Sealed bool   // the section is there
	Key    Secret // an Ed25519 key, as package audit/seal reads it
	Every  time.Duration
}

func (s *section) audit() Audit {
	a := Audit{Sealed: true, Key: s.secret("key"), Every: s.Duration("every", time.Second, 24*time.Hour)}
	if s.Get("key") == nil {
		s.Problemf(s.Line, s.Path, "want key: env:NAME or file:PATH, by which the audit log is sealed")
	}
	s.Done()
	return a
}

// Erasures is where relays record who was erased: in one of these, or nowhere.
type Erasures struct {
	File  string // a path, to which lines are added
	Topic string
}

func (s *section) erasures() Erasures {
	e := Erasures{File: s.Text("file"), Topic: s.Text("topic")}
	if e.File != "" && !filepath.IsAbs(e.File) { // as file: is
		e.File = filepath.Join(filepath.Dir(s.File), e.File)
	}
	if e.Topic != "" {
		if err := limits.PublishedTopic(e.Topic); err != nil {
			s.Keyf("topic", "%s", err)
		}
	}
	if (e.File == "") == (e.Topic == "") {
		s.Problemf(s.Line, s.Path, "want file: PATH or topic: NAME, one of them")
	}
	s.Done()
	return e
}

// Pick chooses a setting's value: the flag if it was given, else the first of
// the environment, the file and the default that is not empty.
func Pick(flag string, changed bool, env, file, def string) string {
	if changed {
		return flag
	}
	return cmp.Or(env, file, def)
}

// databaseURL may be inline, since it need not hold a password; its problems
// never repeat it.
func (s *section) databaseURL(key string) string {
	n := s.Get(key)
	if n == nil {
		return ""
	}
	path := document.Join(s.Path, key)
	v := s.TextOf(n, path)
	if v == "" {
		return ""
	}
	if secret, ok := s.reader.reference(n, path); ok {
		if v = secret.Reveal(); v == "" {
			return ""
		}
	}
	if !isConnectionString(v) {
		s.Problemf(n.Line, path, "want postgres://…, keywords such as host=… dbname=…, env:NAME or file:PATH")
	}
	return v
}

func isConnectionString(v string) bool {
	if strings.HasPrefix(v, "postgres://") || strings.HasPrefix(v, "postgresql://") {
		_, err := url.Parse(v)
		return err == nil
	}
	keyword, _, ok := strings.Cut(v, "=")
	return ok && variableName.MatchString(strings.TrimSpace(keyword))
}

func (s *section) listen(key string) string {
	v := s.Text(key)
	if v == "" {
		return ""
	}
	_, port, err := net.SplitHostPort(v)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		s.Keyf(key, "%q is not an address and a port such as 127.0.0.1:8420", v)
	}
	return v
}
