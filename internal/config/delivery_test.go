package config_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/config"
)

// Every key of deliveries and providers is read.
func TestParse_Deliveries(t *testing.T) {
	t.Parallel()
	c, err := parse(`
channels:
  outbox: {enabled: true, poll_interval_seconds: 0.5, claim_batch_size: 50, lock_timeout_seconds: 90, max_attempts: 7, base_retry_seconds: 2, jitter_min: 0.6, jitter_max: 1.1, retention_days: 30, content_retention_days: 20}
providers:
  mail:
    type: smtp
    address: smtp.example.com:587
    security: tls
    user: deed
    password: env:API_KEY
    hello: relay.example.com
    from: Shop <shop@example.com>
    sandbox: me@example.com
    concurrency: 8
    timeout: 20s
    rate: 12.5
    burst: 3
    lanes: {Gmail.com: 5, example.org: 0.5}
  api: {type: resend, api_key: env:API_KEY, endpoint: "http://127.0.0.1:1", from: a@example.com}
  post: {type: postmark, server_token: env:API_KEY, message_stream: broadcast, event_user: deed, event_password: env:API_KEY, account: acme, from: a@example.com, sandbox: me@example.com, endpoint: "http://127.0.0.1:5"}
  grid: {type: sendgrid, api_key: env:API_KEY, event_key: MFkw, activity: true, account: acme, from: a@example.com, sandbox: me@example.com, endpoint: "http://127.0.0.1:6"}
  bulk: {type: ses, region: eu-central-1, access_key_id: env:API_KEY, secret_access_key: env:API_KEY, session_token: env:API_KEY, configuration_set: events, account: acme, from: a@example.com, from_allowed: ["@example.com"], headers_allowed: ["X-Shop-*"], sandbox: me@example.com, endpoint: "http://127.0.0.1:3"}
  calls: {type: twilio, account_sid: AC0, auth_token: env:API_KEY, from: "+15017122661", messaging_service_sid: MG0, status_callback: "https://hooks.example.com/x#rc=2", look_up_calls: true, sandbox: "+15005550006", endpoint: "http://127.0.0.1:4"}
  texts: {type: twilio, account_sid: AC0, api_key_sid: SK0, api_key_secret: env:API_KEY, messaging_service_sid: MG0}
  fedi: {type: mastodon, endpoint: "http://127.0.0.1:7", account: "@shop@mastodon.example", token: env:API_KEY, sandbox: "@test@mastodon.example", sandbox_token: env:API_KEY, max_characters: 5000}
  sky: {type: bluesky, account: did:plc:z72i7hdynmk6r22z27h6tvur, password: env:API_KEY, sandbox: test.example.com, sandbox_password: env:API_KEY, endpoint: "http://127.0.0.1:8"}
  team: {type: slack, token: env:API_KEY, account: acme, sandbox: "T024BE91L:U024BE7LH"}
  phone: {type: whatsapp, token: env:API_KEY, phone_number_id: "106540352242922", sandbox: "+16505551234"}
  nobody: {type: stub, fail: {refused: 0.1, unknown: 1e-2}, rate: 100}
  bot: {type: telegram, token: env:API_KEY, endpoint: "http://127.0.0.1:2", sandbox: "-1001/7", rate: 25}
  hooks: {type: webhook, secret: env:HOOK_SECRET, previous_secret: file:hook.old, allow_hosts: [10.0.0.1], hosts: ["http://10.0.0.1:8080", "*.example.com"], tenants: [6F1C2D3E-0000-4000-8000-000000000001], headers: {x-api-key: env:API_KEY}, drops_repeats: 24h, per_lane: 2, hanging: 0, sandbox: "https://example.com/"}
`)
	if err != nil {
		t.Fatal(err)
	}
	wantOutbox := config.Outbox{
		Enabled: "true", PollIntervalSeconds: "0.5", ClaimBatchSize: "50", LockTimeoutSeconds: "90", MaxAttempts: "7", BaseRetrySeconds: "2",
		JitterMin: "0.6", JitterMax: "1.1", RetentionDays: "30", ContentRetentionDays: "20",
	}
	if diff := cmp.Diff(wantOutbox, c.Outbox); diff != "" {
		t.Error(diff)
	}
	m := c.Providers["mail"]
	if m.Address != "smtp.example.com:587" || m.Password.Reveal() != "key-hunter2" || m.Rate != 12.5 || m.Burst != 3 || m.Timeout != 20*time.Second ||
		m.Lanes["gmail.com"] != 5 || m.Lanes["example.org"] != 0.5 || m.Security != "tls" || m.Sandbox != "me@example.com" || m.Concurrency != 8 {
		t.Errorf("%+v", m)
	}
	if a := c.Providers["api"]; a.APIKey.Reveal() != "key-hunter2" || a.Endpoint != "http://127.0.0.1:1" {
		t.Errorf("%+v", a)
	}
	if s := c.Providers["nobody"]; !maps.Equal(s.Fail, map[string]float64{"refused": 0.1, "unknown": 0.01}) || s.Rate != 100 {
		t.Errorf("%+v", s)
	}
	if p := c.Providers["post"]; p.Token.Reveal() != "key-hunter2" || p.MessageStream != "broadcast" || p.EventUser != "deed" || p.EventPassword.Reveal() != "key-hunter2" || p.Account != "acme" ||
		p.From != "a@example.com" || p.Sandbox != "me@example.com" || p.Endpoint != "http://127.0.0.1:5" || !p.HasEvents() {
		t.Errorf("%+v", p)
	}
	if g := c.Providers["grid"]; g.APIKey.Reveal() != "key-hunter2" || g.EventKey != "MFkw" || !g.Activity || g.Account != "acme" || g.From != "a@example.com" || g.Sandbox != "me@example.com" || g.Endpoint != "http://127.0.0.1:6" || !g.HasEvents() {
		t.Errorf("%+v", g)
	}
	if f := c.Providers["fedi"]; f.Endpoint != "http://127.0.0.1:7" || f.Account != "@shop@mastodon.example" || f.Token.Reveal() != "key-hunter2" || f.Sandbox != "@test@mastodon.example" ||
		f.SandboxToken.Reveal() != "key-hunter2" || f.MaxCharacters != 5000 {
		t.Errorf("%+v", f)
	}
	if b := c.Providers["sky"]; b.Account != "did:plc:z72i7hdynmk6r22z27h6tvur" || b.Password.Reveal() != "key-hunter2" || b.Sandbox != "test.example.com" ||
		b.SandboxPassword.Reveal() != "key-hunter2" || b.Endpoint != "http://127.0.0.1:8" {
		t.Errorf("%+v", b)
	}
	if s := c.Providers["bulk"]; s.Region != "eu-central-1" || s.AccessKeyID.Reveal() != "key-hunter2" || s.SecretAccessKey.Reveal() != "key-hunter2" || s.SessionToken.Reveal() != "key-hunter2" ||
		s.ConfigurationSet != "events" || s.Account != "acme" || s.From != "a@example.com" || len(s.FromAllowed) != 1 || len(s.HeadersAllowed) != 1 || s.Sandbox != "me@example.com" || s.Endpoint != "http://127.0.0.1:3" {
		t.Errorf("%+v", s)
	}
	if v := c.Providers["calls"]; v.AccountSID != "AC0" || v.AuthToken.Reveal() != "key-hunter2" || v.From != "+15017122661" || v.MessagingServiceSID != "MG0" ||
		v.StatusCallback != "https://hooks.example.com/x#rc=2" || !v.LookUpCalls || v.Sandbox != "+15005550006" || v.Endpoint != "http://127.0.0.1:4" {
		t.Errorf("%+v", v)
	}
	if v := c.Providers["texts"]; v.APIKeySID != "SK0" || v.APIKeySecret.Reveal() != "key-hunter2" || v.LookUpCalls {
		t.Errorf("%+v", v)
	}
	if s := c.Providers["team"]; s.Token.Reveal() != "key-hunter2" || s.Account != "acme" || s.Sandbox != "T024BE91L:U024BE7LH" {
		t.Errorf("%+v", s)
	}
	if w := c.Providers["phone"]; w.Token.Reveal() != "key-hunter2" || w.PhoneNumberID != "106540352242922" || w.Sandbox != "+16505551234" {
		t.Errorf("%+v", w)
	}
	if b := c.Providers["bot"]; b.Token.Reveal() != "key-hunter2" || b.Endpoint != "http://127.0.0.1:2" || b.Sandbox != "-1001/7" {
		t.Errorf("%+v", b)
	}
	h := c.Providers["hooks"]
	if h.Secret.Reveal() != standardSecret || h.DropsRepeats != 24*time.Hour || h.PerLane != 2 || h.Hanging != -1 || h.Headers["x-api-key"].Reveal() == "" || len(h.AllowHosts) != 1 ||
		len(h.Hosts) != 2 || len(h.Tenants) != 1 || h.Tenants[0].String() != "6f1c2d3e-0000-4000-8000-000000000001" {
		t.Errorf("%+v", h)
	}
}

// What is wrong with them is said, all at once, without a secret.
func TestParse_DeliveriesWrong(t *testing.T) {
	t.Parallel()
	_, err := parse(`
channels:
  outbox: {enabled: perhaps, claim_batch_size: 0, jitter_min: x, polls: 1}
  inbox: {}
providers:
  mail: {type: smtp, address: nowhere, user: u, from: "no", rate: -1, lanes: {x.com: -1}}
  api: {type: resend, api_key: hunter2}
  bulk: {type: ses, secret_access_key: hunter2, sandbox: Me <me@example.com>}
  texts: {type: twilio, auth_token: hunter2, api_key_sid: SK0, status_callback: nowhere, look_up_calls: perhaps, sandbox: "15005550006"}
  team: {type: slack, sandbox: "#general"}
  phone: {type: whatsapp, sandbox: me@example.com}
  bot: {type: telegram, sandbox: me@example.com, from: a@example.com}
  post: {type: postmark, event_user: deed}
  grid: {type: sendgrid, activity: sometimes}
  fedi: {type: mastodon, account: shop, sandbox: "@test@mastodon.example"}
  sky: {type: bluesky, account: shop.example.com, password: hunter2, sandbox: Shop.example.com}
  nobody: {type: stub, fail: {refused: 1.1}, sandbox: me@example.com}
  hooks: {type: webhook, drops_repeats: 1s, hosts: [], tenants: [acme]}
  open: {type: webhook, secret: env:HOOK_SECRET, headers: {x-api-key: env:API_KEY}}
  other: {type: pigeon}
  none: {}
`)
	for _, want := range []string{
		"channels.outbox.enabled", "channels.outbox.claim_batch_size", "channels.outbox.jitter_min", "channels.outbox.polls", "channels.inbox",
		"providers.mail.address", "user and password go together", "providers.mail.from", "providers.mail.rate", "providers.mail.lanes.x.com",
		"providers.api.api_key: want env:NAME",
		"providers.fedi: the provider has no endpoint", "providers.fedi: the provider has no token", "providers.fedi.account: want an account", "providers.fedi: sandbox and sandbox_token go together",
		"providers.sky.password: want env:NAME", "providers.sky: sandbox and sandbox_password go together", "providers.sky.sandbox: it is the account",
		"providers.grid: the provider has no api_key", "providers.grid.activity: want true or false", "providers.post: the provider has no server_token", "providers.post: event_user and event_password go together",
		"providers.bulk: the provider has no region", "providers.bulk: the provider has no access_key_id", "providers.bulk.secret_access_key: want env:NAME", "providers.bulk.sandbox: more than an e-mail address",
		"providers.texts: the provider has no account_sid", "providers.texts.auth_token: want env:NAME", "providers.texts: want auth_token, or api_key_sid and api_key_secret",
		"providers.texts: the provider has neither from nor messaging_service_sid", "providers.texts.status_callback", "providers.texts.look_up_calls: want true or false", "providers.texts.sandbox: want a number with +",
		"providers.mail.rate: -1 is not from 0.001 to 1000000", "providers.team: the provider has no token", "providers.team.sandbox: want the id", "providers.phone: the provider has no token", "providers.phone: the provider has no phone_number_id", "providers.phone.sandbox: want a number", "providers.bot: the provider has no token", "providers.bot.sandbox: want a chat's number", "providers.bot.from", "providers.nobody.fail.refused: 1.1 is not from 0 to 1", "providers.nobody.sandbox", "the provider has no secret", "providers.hooks.drops_repeats", "providers.hooks.hosts: the list is empty", "providers.hooks.tenants", "providers.open.headers: whoever reserves", `no provider type is called "pigeon"`, "the provider has no type",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("repeats a secret: %v", err)
	}
}

// The headers that a provider allows are names, beginnings, or all.
func TestProvider_HeadersAllowed(t *testing.T) {
	t.Parallel()
	text := func(list string) string {
		return "\nproviders:\n  mail: {type: resend, api_key: env:API_KEY, from: a@b.example, headers_allowed: [" + list + "]}\n"
	}
	f, err := parse(text(`X-Campaign, "X-Shop-*", "*"`))
	if err != nil || len(f.Providers["mail"].HeadersAllowed) != 3 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []string{`"a b"`, `"X-*-y"`, `""`, `"x: y"`} {
		if _, err := parse(text(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// The senders that a provider allows are addresses, domains, or all.
func TestProvider_FromAllowed(t *testing.T) {
	t.Parallel()
	text := func(list string) string {
		return "\nproviders:\n  mail: {type: resend, api_key: env:API_KEY, from: a@b.example, from_allowed: [" + list + "]}\n"
	}
	f, err := parse(text(`"@example.com", ann@example.org, "*"`))
	if err != nil || len(f.Providers) != 1 || len(f.Providers["mail"].FromAllowed) != 3 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []string{"example.com", `"Ann <ann@example.org>"`, `"@"`, `""`, `"@*.example.com"`, `"*@example.com"`} {
		if _, err := parse(text(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// The domains that a provider's account may send from are domains, each by its name, and of e-mails.
func TestProvider_VerifiedDomains(t *testing.T) {
	t.Parallel()
	of := func(kind, list string) (*config.Config, error) {
		return parse("\nproviders:\n  mail: {type: " + kind + ", verified_domains: [" + list + "]}\n")
	}
	f, err := of("resend, api_key: env:API_KEY", `example.com, Shop.example, bücher.example`)
	if err != nil || len(f.Providers["mail"].Verified) != 3 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []string{"", `""`, `"@example.com"`, `"*.example.com"`, "ann@example.com", `"https://example.com"`, "example.com."} {
		if _, err := of("resend, api_key: env:API_KEY", bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if _, err := of("slack, token: env:API_KEY", "example.com"); err == nil {
		t.Error("a provider that sends no e-mail has verified domains")
	}
}

// order, and what it accepts fits together.
func FuzzParse(f *testing.F) {
	f.Add(full)
	for _, seed := range []string{
		"", "~", "a: b", "topics: {a: &x {sink: s}, b: {<<: *x}}\nsinks: {s: {type: print}}",
		"topics:\n  ? a\n  : {sinks: [s, s]}\n", "worker: !!str 5", "worker: |\n  x\n", "a: *a", "&a a: *a", "<<: [*a]", "- - - ? ? ?",
		"%YAML 1.2\n---\nworker: a\n...\n", "a: 1\n---\nb: 2", "\"a\\x00\": \"\\ud800\"", "{a: [b, {c: d}]}", "sinks: {s: {type: webhook, headers: {a: env:API_KEY}}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse(text)
		if err == nil {
			for _, topic := range c.Topics {
				if len(topic.Sinks) == 0 || topic.Line < 1 {
					t.Errorf("topic %+v", topic)
				}
				for _, name := range topic.Sinks {
					if c.Sinks[name].Name != name {
						t.Errorf("topic %q goes to %q, which is not there", topic.Name, name)
					}
				}
			}
			return
		}
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatalf("not a list of problems: %v", err)
		}
		last := 1
		for _, p := range joined.Unwrap() {
			rest, ok := strings.CutPrefix(p.Error(), "etc/deed.yaml:")
			var line int
			if _, scan := fmt.Sscanf(rest, "%d:", &line); !ok || scan != nil || line < last {
				t.Fatalf("problem %q after line %d", p, last)
			}
			last = line
			if lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1; line > lines {
				t.Errorf("problem %q, but the text has %d lines", p, lines)
			}
		}
	})
}

func TestParse_Erasures(t *testing.T) {
	t.Parallel()
	parse := func(text string) (*config.Config, error) {
		return config.Parse("/etc/deed/deed.yaml", []byte(text), func(string) (string, bool) { return "", false }, nil)
	}
	c, err := parse("erasures: {file: kept/erasures.ndjson}")
	if err != nil || c.Erasures != (config.Erasures{File: "/etc/deed/kept/erasures.ndjson"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = parse("erasures: {topic: erased}"); err != nil || c.Erasures != (config.Erasures{Topic: "erased"}) {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"erasures: {}":                       "want file: PATH or topic: NAME, one of them",
		"erasures: {file: a, topic: b}":      "want file: PATH or topic: NAME, one of them",
		"erasures: {topic: 'a b'}":           "erasures.topic",
		"erasures: {file: a, keep: forever}": "keep",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
