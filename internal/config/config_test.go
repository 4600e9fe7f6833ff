package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deedhq/deed/internal/config"
)

const (
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	plainSecret    = "sixteen bytes and a few"
)

func env(name string) (string, bool) {
	v, ok := map[string]string{
		"HOOK_SECRET":  standardSecret,
		"PLAIN_SECRET": plainSecret,
		"SHORT_SECRET": "hunter2",
		"BAD_SECRET":   "whsec_hunter2",
		"API_KEY":      "key-hunter2",
		"TWO_LINES":    "hunter2\nhunter2",
		"DATABASE":     "postgres://deed:hunter2@db/deed",
		"EMPTY":        "",
	}[name]
	return v, ok
}

func readFile(name string) ([]byte, error) {
	v, ok := map[string]string{
		"etc/hook.old":  plainSecret + "\n",
		"/run/hook.key": standardSecret + "\r\n",
		"etc/empty":     "\n",
	}[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(v), nil
}

func parse(text string) (*config.Config, error) {
	return config.Parse("etc/deed.yaml", []byte(text), env, readFile)
}

// plain makes Secrets comparable.
var plain = cmp.Transformer("Reveal", func(s config.Secret) string { return s.Reveal() })

const full = `# every key
database_url: env:DATABASE
listen: 127.0.0.1:8420
log: {level: info, format: json}
worker: relay-1
topics:
  orders:
    sink: hooks
    max_attempts: 5
    lease: 30s
    from: beginning
    concurrency: 16
    batch: 200
  audit: {sinks: [hooks, printer], from: now}
  2024: {sink: "bare"}
sinks:
  hooks:
    type: webhook
    url: https://example.com/hooks?a=b
    secret: env:HOOK_SECRET
    previous_secret: file:hook.old
    allow_hosts: [127.0.0.1, 10.0.0.0/8, "::1", hooks.internal]
    body: cloudevents
    timeout: 15s
    headers: {X-Api-Key: env:API_KEY, x-from: deed}
    breaker: {failures: 5, pause: 1s, max_pause: 30s}
  printer: {type: print}
  bare: {type: webhook, url: "http://localhost:9000", secret: "file:/run/hook.key"}
dev: {data: .deed, port: 5433, catch_smtp: '127.0.0.1:25', catch_http: '127.0.0.1:80'}
`

func TestParse_Full(t *testing.T) {
	t.Parallel()
	want := &config.Config{
		File:        "etc/deed.yaml",
		DatabaseURL: "postgres://deed:hunter2@db/deed",
		Listen:      "127.0.0.1:8420",
		Worker:      "relay-1",
		LogLevel:    "info",
		LogFormat:   "json",
		Dev:         config.Dev{Data: "etc/.deed", Port: 5433, CatchSMTP: "127.0.0.1:25", CatchHTTP: "127.0.0.1:80"},
		Topics: []config.Topic{
			{
				Name: "orders", Sinks: []string{"hooks"}, MaxAttempts: 5, Lease: 30 * time.Second,
				From: "beginning", Concurrency: 16, Batch: 200, Line: 7,
			},
			{Name: "audit", Sinks: []string{"hooks", "printer"}, From: "now", Line: 14},
			{Name: "2024", Sinks: []string{"bare"}, Line: 15},
		},
		Sinks: map[string]config.Sink{"printer": {Name: "printer", Type: "print", Line: 27}},
	}
	hooks := &config.Webhook{
		URL:        "https://example.com/hooks?a=b",
		AllowHosts: []string{"127.0.0.1", "10.0.0.0/8", "::1", "hooks.internal"},
		Body:       "cloudevents",
		Timeout:    15 * time.Second,
		Breaker:    config.Breaker{Failures: 5, Pause: time.Second, MaxPause: 30 * time.Second},
	}
	want.Sinks["hooks"] = config.Sink{Name: "hooks", Type: "webhook", Line: 17, Webhook: hooks}
	want.Sinks["bare"] = config.Sink{
		Name: "bare", Type: "webhook", Line: 28,
		Webhook: &config.Webhook{URL: "http://localhost:9000"},
	}
	for name, text := range map[string]string{
		"LF":                full,
		"CRLF":              strings.ReplaceAll(full, "\n", "\r\n"),
		"byte order mark":   "\ufeff" + full,
		"document marks":    strings.Replace(full, "# every key", "---", 1) + "...\n",
		"no last line end":  strings.TrimSuffix(full, "\n"),
		"trailing comments": full + "# end\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(text)
			if err != nil {
				t.Fatal(err)
			}
			secrets := map[string]string{
				"secret":    got.Sinks["hooks"].Webhook.Secret.Reveal(),
				"previous":  got.Sinks["hooks"].Webhook.PreviousSecret.Reveal(),
				"x-api-key": got.Sinks["hooks"].Webhook.Headers["x-api-key"].Reveal(),
				"x-from":    got.Sinks["hooks"].Webhook.Headers["x-from"].Reveal(),
				"bare":      got.Sinks["bare"].Webhook.Secret.Reveal(),
			}
			if diff := cmp.Diff(map[string]string{
				"secret": standardSecret, "previous": plainSecret, "x-api-key": "key-hunter2",
				"x-from": "deed", "bare": standardSecret,
			}, secrets); diff != "" {
				t.Errorf("secrets (-want +got):\n%s", diff)
			}
			for _, name := range []string{"hooks", "bare"} {
				w := got.Sinks[name].Webhook
				w.Secret, w.PreviousSecret, w.Headers = config.Secret{}, config.Secret{}, nil
			}
			if diff := cmp.Diff(want, got, plain, cmpopts.IgnoreUnexported(config.Config{})); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

// What an entry says stands in that entry: a file is read by people when
// something is wrong.
func TestParse_ErrAnchorsAndMerges(t *testing.T) {
	t.Parallel()
	_, err := parse(`
topics:
  a: &base {sink: out, max_attempts: 5, lease: 10s}
  b:
    <<: *base
    sink: out
sinks:
  out: {type: !!str print}
`)
	want := "etc/deed.yaml:3: topics.a: anchors and aliases (&name, *name) have no meaning here; write the value out\n" +
		"etc/deed.yaml:5: topics.b: merge keys (<<) have no meaning here; write the entries out"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// A file as large as one may be, that would bring in millions of entries, is read to
// its end, and each place is named at which it would.
func TestParse_ErrMergesOfALargeFile(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("sinks: {out: {type: print}}\ntopics:\n  a: &base\n")
	for i := range 8000 {
		fmt.Fprintf(&text, "    k%d: x\n", i)
	}
	merges := 0
	for ; text.Len() < 250<<10; merges++ {
		fmt.Fprintf(&text, "  m%d: {<<: *base, sink: out}\n", merges)
	}
	_, err := parse(text.String())
	if got := strings.Count(fmt.Sprint(err), "merge keys (<<) have no meaning here"); got != merges || merges < 4000 {
		t.Errorf("%d of %d merges are named", got, merges)
	}
	if got := strings.Count(fmt.Sprint(err), "\n"); got != merges {
		t.Errorf("%d problems, want %d and the anchor", got+1, merges)
	}
}

func TestParse_OnlyADatabase(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://localhost/deed", "postgresql:///deed?host=/run", "host=/run dbname=deed"} {
		got, err := parse("database_url: " + url)
		if err != nil || got.DatabaseURL != url {
			t.Errorf("%s: got %v, %v", url, got, err)
		}
	}
}

// All that is wrong comes at once, in the order of the lines.
func TestParse_AllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parse(`database_ur: postgres://localhost/deed
listen: 8420
log: {level: verbose, format: txt}
topics:
  orders:
    sink: hookz
    max_attempts: 0
    lease: 500ms
    leese: 30s
  "bad topic": {sinks: [hooks, hooks, lost]}
  none: {}
  both: {sink: hooks, sinks: [printer]}
  orders: {sink: hooks}
sinks:
  printer: {type: prnt}
  unused: {type: print, url: x}
  hooks:
    type: webhook
    url: ftp://example.com
    secret: hunter2
`)
	want := `etc/deed.yaml:1: database_ur: unknown key (did you mean "database_url"?)
etc/deed.yaml:2: listen: want text, got a whole number; put it in quotes
etc/deed.yaml:3: log.level: "verbose" is none of debug, info, warn, error
etc/deed.yaml:3: log.format: "txt" is none of text, json (did you mean "text"?)
etc/deed.yaml:6: topics.orders.sink: no sink is named "hookz" (did you mean "hooks"?)
etc/deed.yaml:7: topics.orders.max_attempts: 0 is not from 1 to 1000
etc/deed.yaml:8: topics.orders.lease: 500ms is not from 1s to 24h
etc/deed.yaml:9: topics.orders.leese: unknown key (did you mean "lease"?)
etc/deed.yaml:10: topics.bad topic: a topic's name has 1 to 200 characters of A-Z a-z 0-9 . _ : / -
etc/deed.yaml:10: topics.bad topic.sinks: the sink "hooks" is named twice
etc/deed.yaml:10: topics.bad topic.sinks: no sink is named "lost"
etc/deed.yaml:11: topics.none: the topic has no sink; add sink: NAME
etc/deed.yaml:12: topics.both.sinks: the topic has both sink and sinks; keep one of them
etc/deed.yaml:13: topics.orders: given twice; the first time in line 5
etc/deed.yaml:15: sinks.printer.type: no sink type is called "prnt" (did you mean "print"?); the types are kafka, nats, print, webhook
etc/deed.yaml:16: sinks.unused.url: unknown key
etc/deed.yaml:16: sinks.unused: no topic uses this sink
etc/deed.yaml:19: sinks.hooks.url: want a URL that begins with http:// or https://
etc/deed.yaml:20: sinks.hooks.secret: want env:NAME or file:PATH; a secret must not stand in the file itself`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestParse_Problems(t *testing.T) {
	t.Parallel()
	topic := func(line string) string { return "topics: {a: {sink: s, " + line + "}}\nsinks: {s: {type: print}}" }
	hook := func(line string) string {
		return "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, url: http://h, secret: env:HOOK_SECRET,\n" + line + "}}"
	}
	secret := func(line string) string {
		return "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, url: http://h,\nsecret: " + line + "}}"
	}
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "1: the file is empty; it wants at least a topic and its sink, such as\n" +
			"  topics: {orders: {sink: printer}}\n  sinks: {printer: {type: print}}"},
		{"comments only", "# nothing\n\n# here\n", "1: the file is empty; it wants at least a topic and its sink, such as\n" +
			"  topics: {orders: {sink: printer}}\n  sinks: {printer: {type: print}}"},
		{"null", "\n~\n", "1: the file is empty; it wants at least a topic and its sink, such as\n  topics: {orders: {sink: printer}}\n  sinks: {printer: {type: print}}"},
		{"text", "hello", "1: want a mapping with keys such as topics and sinks, got text"},
		{"list", "\n- a\n- b", "2: want a mapping with keys such as topics and sinks, got a list"},
		{"two documents", "worker: a\n---\nworker: b\n", "3: a second document begins here; put all into one"},
		{"not UTF-8", "a: b\nworker: \"\xff\"", "2: not UTF-8"},
		{"too large", "# " + strings.Repeat("x", 256<<10), "1: the file is larger than 262144 bytes"},
		{"syntax", "topics:\n  a: {sink: s\n", "2: not valid YAML: did not find expected ',' or '}'"},
		{"tab", "topics:\n\ta: {sink: s}\n", "2: not valid YAML: found character that cannot start any token"},
		{"nested brackets", "a: " + strings.Repeat("[", 5000), "1: not valid YAML: did not find expected node content"},
		{"nested lists", "a:\n  " + strings.Repeat("- ", 5000), "1: a: unknown key\n2: a: values are nested more than 100 deep"},
		{"alias of nothing", "worker: *x", "1: anchors and aliases (&name, *name) have no meaning here; write the value out"},
		{"alias of itself", "topics: &x {a: *x}", "1: topics: anchors and aliases (&name, *name) have no meaning here; write the value out"},
		{"tag", "worker: !hunter2 x", "1: worker: this tag has no meaning here"},
		{"merge of text", "topics:\n  <<: x", "2: topics: merge keys (<<) have no meaning here; write the entries out"},
		{"duplicate key", "worker: a\n\nworker: b", "3: worker: given twice; the first time in line 1"},
		{
			"text of several lines", "\nlisten:\n  a\n  b\nlog: {level: 'a\n  b',\n format: x}\nfrom: x",
			"2: listen: \"a b\" is not an address and a port such as 127.0.0.1:8420\n" +
				"5: log.level: \"a b\" is none of debug, info, warn, error\n" +
				"7: log.format: \"x\" is none of text, json\n8: from: unknown key",
		},
		{
			"block text", "listen: |\n  a\n  b\nlog:\n  level: >\n    c\n\n\n  format: \"a\n\n    b\"\nx: y",
			"1: listen: \"a\\nb\\n\" is not an address and a port such as 127.0.0.1:8420\n" +
				"5: log.level: \"c\\n\" is none of debug, info, warn, error\n" +
				"9: log.format: \"a\\nb\" is none of text, json\n12: x: unknown key",
		},
		{"control character in a key", `"a\nb": 1`, `1: "a\nb": unknown key`},

		{"null value", "worker:\nlisten: ~", "1: worker: has no value\n2: listen: has no value"},
		{"empty text", `worker: " "`, "1: worker: is empty"},
		{"list for text", "worker: [a]", "1: worker: want text, got a list"},
		{"boolean for text", "worker: true", "1: worker: want text, got true or false; put it in quotes"},
		{"topics is a list", "topics:\n  - a\n", "2: topics: want a mapping, got a list"},
		{"topics is null", "topics:\n", "1: topics: has no value"},
		{"topic is null", "topics: {a: }", "1: topics.a: has no value"},
		{"topic is text", "topics: {a: s}\n", "1: topics.a: want a mapping, got text"},
		{"log is text", "log: info", "1: log: want a mapping, got text"},
		{"unknown key of log", "log: {levle: info}", `1: log.levle: unknown key (did you mean "level"?)`},
		{"listen", "listen: localhost", `1: listen: "localhost" is not an address and a port such as 127.0.0.1:8420`},
		{"listen port", "listen: localhost:99999", `1: listen: "localhost:99999" is not an address and a port such as 127.0.0.1:8420`},

		{"number is text", topic(`batch: "5"`), "1: topics.a.batch: want a whole number from 1 to 10000, got text"},
		{"number is a fraction", topic("batch: 1.5"), "1: topics.a.batch: want a whole number from 1 to 10000, got 1.5"},
		{"number is none", topic("batch: .nan"), "1: topics.a.batch: want a whole number from 1 to 10000, got .nan"},
		{
			"decimals are none", "channels:\n  outbox: {jitter_min: .nan, jitter_max: .inf, base_retry_seconds: -.Inf}",
			"2: channels.outbox.base_retry_seconds: want a number from 0.001 to 3600, got -.Inf\n" +
				"2: channels.outbox.jitter_min: want a number from 0.01 to 2, got .nan\n" +
				"2: channels.outbox.jitter_max: want a number from 0.01 to 2, got .inf",
		},
		{"number is huge", topic("batch: 18446744073709551615"), "1: topics.a.batch: 18446744073709551615 is not from 1 to 10000"},
		{"number is below 0", topic("concurrency: -1"), "1: topics.a.concurrency: -1 is not from 1 to 1000"},
		{"batch", topic("batch: 10001"), "1: topics.a.batch: 10001 is not from 1 to 10000"},
		{"concurrency", topic("concurrency: 1001"), "1: topics.a.concurrency: 1001 is not from 1 to 1000"},
		{"max_attempts", topic("max_attempts: 1001"), "1: topics.a.max_attempts: 1001 is not from 1 to 1000"},
		{"from", topic("from: nwo"), `1: topics.a.from: "nwo" is none of beginning, now (did you mean "now"?)`},
		{"duration without unit", topic("lease: 30"), "1: topics.a.lease: 30 has no unit; write it as 30s, 5m or 1h30m"},
		{"no duration", topic("lease: soon"), `1: topics.a.lease: "soon" is not a duration such as 30s, 5m or 1h30m`},
		{"duration is a list", topic("lease: [1s]"), "1: topics.a.lease: want a duration such as 30s, got a list"},
		{"duration below 0", topic("lease: -1s"), "1: topics.a.lease: -1s is not above 0"},
		{"long lease", topic("lease: 25h"), "1: topics.a.lease: 25h is not from 1s to 24h"},
		{"sink is null", "topics: {a: {sink: }}", "1: topics.a.sink: has no value"},
		{
			"sinks is text", "topics: {a: {sinks: s}}\nsinks: {s: {type: print}}",
			"1: topics.a.sinks: want a list such as [a, b], got text\n2: sinks.s: no topic uses this sink",
		},
		{"sinks is empty", "topics: {a: {sinks: []}}", "1: topics.a.sinks: the list is empty"},
		{
			"sinks has a null", "topics:\n  a:\n    sinks:\n      - s\n      -\nsinks: {s: {type: print}}",
			"5: topics.a.sinks: an entry of the list has no value",
		},
		{
			"topic without a name", `topics: {"": {sink: s}}` + "\nsinks: {s: {type: print}}",
			`1: topics."": a topic's name has 1 to 200 characters of A-Z a-z 0-9 . _ : / -`,
		},
		{
			"long topic name", "topics: {" + strings.Repeat("a", 201) + ": {sink: s}}\nsinks: {s: {type: print}}",
			"1: topics." + strings.Repeat("a", 201) + ": a topic's name has 1 to 200 characters of A-Z a-z 0-9 . _ : / -",
		},

		{"sink without a type", "topics: {a: {sink: s}}\nsinks: {s: {}}", "2: sinks.s: the sink has no type; the types are kafka, nats, print, webhook"},
		{
			"sink name", "topics: {a: {sink: s/s}}\nsinks: {s/s: {type: print}}",
			"2: sinks.s/s: a sink's name has 1 to 100 characters of A-Z a-z 0-9 . _ -",
		},
		{"no sinks at all", "topics: {a: {sink: s}}", `1: topics.a.sink: no sink is named "s"`},
		{"no topics at all", "sinks: {s: {type: print}}", "1: sinks.s: no topic uses this sink"},

		{
			"webhook without url and secret", "topics: {a: {sink: s}}\nsinks: {s: {type: webhook}}",
			"2: sinks.s: the webhook has no url\n2: sinks.s: the webhook has no secret",
		},
		{
			"url without a host", "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, secret: env:HOOK_SECRET, url: 'https:///x'}}",
			"2: sinks.s.url: the URL names no host",
		},
		{
			"url with a password", "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, secret: env:HOOK_SECRET, url: 'https://u:hunter2@h/'}}",
			"2: sinks.s.url: the URL holds a user or password; put an authorization header under headers, from env: or file:",
		},
		{
			"url that is none", "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, secret: env:HOOK_SECRET, url: 'https://u:hunter2@h:x%zz/'}}",
			"2: sinks.s.url: not a valid URL",
		},
		{
			"url with a fragment", "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, secret: env:HOOK_SECRET, url: 'https://h/#x'}}",
			"2: sinks.s.url: the URL has a fragment, which is never sent",
		},
		{"body", hook("body: cloudevent"), `3: sinks.s.body: "cloudevent" is none of raw, cloudevents (did you mean "cloudevents"?)`},
		{"timeout", hook("timeout: 0s"), "3: sinks.s.timeout: 0s is not above 0"},
		{
			"allow_hosts", hook("allow_hosts: [ok, 'http://h', 'a b', 10.0.0.0/99, 'fe80::1%eth0', '::ffff:1.2.3.4/120']"),
			`3: sinks.s.allow_hosts: "http://h" is not a host name, IP address or CIDR range
3: sinks.s.allow_hosts: "a b" is not a host name, IP address or CIDR range
3: sinks.s.allow_hosts: "10.0.0.0/99" is not a host name, IP address or CIDR range
3: sinks.s.allow_hosts: "fe80::1%eth0" is not a host name, IP address or CIDR range
3: sinks.s.allow_hosts: "::ffff:1.2.3.4/120" is not a host name, IP address or CIDR range`,
		},
		{
			"headers", hook(`headers: {a b: x, deed-x: x, X-A: x, x-a: x, n: 1, l: [x], e: env:TWO_LINES, authorization: hunter2}`),
			`3: sinks.s.headers.a b: not a header's name
3: sinks.s.headers.deed-x: deed sets this header itself
3: sinks.s.headers.x-a: given twice, in different case
3: sinks.s.headers.n: want text, got a whole number; put it in quotes
3: sinks.s.headers.l: want text, got a list
3: sinks.s.headers.e: the value is not printable ASCII
3: sinks.s.headers.authorization: want env:NAME or file:PATH; a secret must not stand in the file itself`,
		},
		{
			"breaker", hook("breaker: {failures: 0, pause: 1m, max_pause: 1s, x: 1}"),
			`3: sinks.s.breaker.failures: 0 is not from 1 to 1000
3: sinks.s.breaker.max_pause: 1s is below pause, 1m0s
3: sinks.s.breaker.x: unknown key`,
		},

		{"inline secret", secret("hunter2hunter2hunter2"), "3: sinks.s.secret: want env:NAME or file:PATH; a secret must not stand in the file itself"},
		{"inline number", secret("1234567890123456"), "3: sinks.s.secret: want env:NAME or file:PATH; a secret must not stand in the file itself"},
		{"inline list", secret("[hunter2]"), "3: sinks.s.secret: want env:NAME or file:PATH; a secret must not stand in the file itself"},
		{"inline behind env", secret("env:hunter2/hunter2"), "3: sinks.s.secret: env: wants the name of an environment variable after it"},
		{"inline behind env, standard", secret("env:" + standardSecret), "3: sinks.s.secret: env: wants the name of an environment variable after it"},
		{"inline behind file, standard", secret("file:" + standardSecret), "3: sinks.s.secret: file: wants a path after it"},
		{"empty env", secret("'env:'"), "3: sinks.s.secret: env: wants the name of an environment variable after it"},
		{"database_url", "database_url: mysql://u:hunter2@h/", "1: database_url: want postgres://…, keywords such as host=… dbname=…, env:NAME or file:PATH"},
		{"database_url from a variable", "database_url: env:API_KEY", "1: database_url: want postgres://…, keywords such as host=… dbname=…, env:NAME or file:PATH"},
		{"database_url that does not parse", "database_url: 'postgres://u:hunter2@h:x%zz/'", "1: database_url: want postgres://…, keywords such as host=… dbname=…, env:NAME or file:PATH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(tt.text)
			if got != nil || err == nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(tt.want, strings.ReplaceAll(err.Error(), "etc/deed.yaml:", "")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), standardSecret) {
				t.Errorf("a secret is repeated: %v", err)
			}
		})
	}
}

// A secret that is not there is a matter of who needs that part of the file, and of nobody else.
func TestLacks_NamesWhatAPartNeeds(t *testing.T) {
	t.Parallel()
	secret := func(value string) string {
		return "topics: {a: {sink: s}, b: {sink: other.s}}\nsinks: {s: {type: webhook, url: http://h,\nsecret: " + value + "}, other.s: {type: webhook, url: http://h, secret: env:HOOK_SECRET}}"
	}
	for _, tt := range []struct{ name, text, want string }{
		{"unset variable", secret("env:NOT_SET"), "3: sinks.s.secret: the environment variable NOT_SET is not set"},
		{"empty variable", secret("env:EMPTY"), "3: sinks.s.secret: the environment variable EMPTY is empty"},
		{"no file", secret("file:hook.new"), `3: sinks.s.secret: file "hook.new": file does not exist`},
		{"empty file", secret("file:empty"), `3: sinks.s.secret: file "empty" is empty`},
		{"short secret", secret("env:SHORT_SECRET"), "3: sinks.s.secret: the secret has 7 bytes; it must have at least 16"},
		{
			"bad standard secret", secret("env:BAD_SECRET"),
			`3: sinks.s.secret: the secret begins with "whsec_" but the base64 of 24 to 64 bytes does not follow`,
		},
	} {
		c, err := parse(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, parts := range [][]string{nil, {"sinks.s"}, {"database_url", "sinks.s"}} {
			if got := strings.ReplaceAll(fmt.Sprint(c.Lacks(parts...)), "etc/deed.yaml:", ""); got != tt.want {
				t.Errorf("%s, %q: %s, want %s", tt.name, parts, got, tt.want)
			}
		}
		if err := c.Lacks("sinks.other.s", "sinks", "providers.s", "database_url"); err != nil {
			t.Errorf("%s: of others: %v", tt.name, err)
		}
	}
	c, err := parse("database_url: env:NOT_SET\npublic: {listen: ':8443', url: 'https://h', link_secret: env:NOT_SET}\nproviders: {m: {type: postmark, server_token: file:none}}")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.Lacks("database_url")); got != "etc/deed.yaml:1: database_url: the environment variable NOT_SET is not set" {
		t.Error(got)
	}
	if got := fmt.Sprint(c.Lacks()); got != "etc/deed.yaml:2: public.link_secret: the environment variable NOT_SET is not set\netc/deed.yaml:3: providers.m.server_token: file \"none\": file does not exist" {
		t.Error(got)
	}
	if err := c.Lacks("providers.m", "public"); err == nil || c.Lacks("providers.n") != nil {
		t.Error(err)
	}
}

// Links that are under way would lead to nothing without it.
func TestPublic_ThePreviousSecretWasBeforeAnother(t *testing.T) {
	t.Parallel()
	_, err := parse("public: {listen: ':8443', url: 'https://h', previous_link_secret: env:HOME}")
	if err == nil || !strings.Contains(err.Error(), "there is no link_secret: which previous_link_secret was before") {
		t.Error(err)
	}
}

func TestSecret_IsRedacted(t *testing.T) {
	t.Parallel()
	c, err := parse(full)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Sinks["hooks"].Webhook
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", w.Secret, "webhook", w)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", w.Secret, "webhook", w)
	hidden := struct{ secret config.Secret }{w.Secret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+verb, w.Secret, w, *w, hidden)
	}
	if err := json.NewEncoder(&out).Encode(w); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{standardSecret, plainSecret, "key-hunter2", fmt.Sprintf("%x", standardSecret)} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is shown in:\n%s", secret, out.String())
		}
	}
	if got := fmt.Sprintf("%v %+v %#v", w.Secret, w.Secret, w.Secret); got != "redacted redacted redacted" {
		t.Errorf("got %q", got)
	}
	if got := (config.Secret{}).Reveal(); got != "" {
		t.Errorf("the zero Secret reveals %q", got)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "deed.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := config.Load(path); !errors.Is(err, fs.ErrNotExist) || err.Error() != path+": no such file or directory" {
		t.Errorf("no file: got %v", err)
	}
	write("hook.key", standardSecret+"\n")
	write("deed.yaml", "topics: {a: {sink: s}}\nsinks: {s: {type: webhook, url: http://h, secret: file:hook.key}}")
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Sinks["s"].Webhook.Secret.Reveal(); got != standardSecret {
		t.Errorf("secret: got %q", got)
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flag           string
		changed        bool
		env, file, def string
		want           string
	}{
		{"", false, "", "", "default", "default"},
		{"", false, "", "file", "default", "file"},
		{"", false, "env", "file", "default", "env"},
		{"flag", true, "env", "file", "default", "flag"},
		{"", true, "env", "file", "default", ""},
	} {
		if got := config.Pick(tt.flag, tt.changed, tt.env, tt.file, tt.def); got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

// Whatever the text, Parse ends, its problems have lines and come in their
