package config_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/config"
)

// certificate is one, with its key, in PEM.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	pair := srv.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", pair.Certificate[0]), block("PRIVATE KEY", der)
}

// parseBrokers parses with files and variables of the test's own.
func parseBrokers(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	cert, key := certificate(t)
	files := map[string]string{
		"etc/ca.pem": cert, "etc/deed.pem": cert, "/run/deed.key": key, "etc/no.pem": "hunter2",
		"etc/deed.creds": "creds-hunter2\n", "etc/empty.pem": "",
	}
	variables := map[string]string{
		"PASSWORD": "hunter2", "NATS_URL": "nats://deed:hunter2@nats-1", "BAD_URL": "http://deed:hunter2@nats-1",
	}
	return config.Parse("etc/deed.yaml", []byte(text),
		func(name string) (string, bool) { v, ok := variables[name]; return v, ok },
		func(name string) ([]byte, error) {
			v, ok := files[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(v), nil
		})
}

func TestParse_Brokers(t *testing.T) {
	t.Parallel()
	got, err := parseBrokers(t, `
topics: {a: {sinks: [stream, secret-url, log, bare]}}
sinks:
  stream:
    type: nats
    url: nats://nats-1:4222,tls://nats-2
    subject: events.{topic}.{type}
    user: deed
    password: env:PASSWORD
    tls: {ca: ca.pem, cert: deed.pem, key: /run/deed.key}
    timeout: 3s
    max_pending: 50
    batch: 20
  secret-url: {type: nats, url: env:NATS_URL, creds: file:deed.creds}
  log:
    type: kafka
    brokers: [kafka-1:9092, "[::1]:9093"]
    topic: events
    sasl: {mechanism: scram-sha-512, user: deed, password: env:PASSWORD}
    tls: {}
    compression: zstd
    timeout: 4s
    max_bytes: 5000000
    max_pending: 60
    batch: 30
  bare: {type: kafka, brokers: [kafka-1:9092, kafka-2.internal:9093]}
`)
	if err != nil {
		t.Fatal(err)
	}
	n, k := got.Sinks["stream"].NATS, got.Sinks["log"].Kafka
	for name, secured := range map[string]*config.TLS{"stream": n.TLS, "log": k.TLS} {
		c, err := secured.Client()
		if err != nil {
			t.Fatal(err)
		}
		if whole := c.RootCAs != nil && len(c.Certificates) == 1; whole != (name == "stream") {
			t.Errorf("%s: authorities %v, %d certificates", name, c.RootCAs != nil, len(c.Certificates))
		}
	}
	secrets := []string{
		n.URL.Reveal(), n.Password.Reveal(), k.SASL.Password.Reveal(),
		got.Sinks["secret-url"].NATS.URL.Reveal(), got.Sinks["secret-url"].NATS.Creds.Reveal(),
	}
	if diff := cmp.Diff([]string{
		"nats://nats-1:4222,tls://nats-2", "hunter2", "hunter2", "nats://deed:hunter2@nats-1", "creds-hunter2",
	}, secrets); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	n.URL, n.Password, n.TLS, k.SASL.Password, k.TLS = config.Secret{}, config.Secret{}, nil, config.Secret{}, nil
	if diff := cmp.Diff(&config.NATS{
		Subject: "events.{topic}.{type}", User: "deed", Timeout: 3 * time.Second, Pending: 50, Batch: 20,
	}, n, plain); diff != "" {
		t.Errorf("nats (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&config.Kafka{
		Brokers: []string{"kafka-1:9092", "[::1]:9093"}, Topic: "events", SASL: config.SASL{Mechanism: "scram-sha-512", User: "deed"},
		Compression: "zstd", Timeout: 4 * time.Second, MaxBytes: 5_000_000, Pending: 60, Batch: 30,
	}, k, plain); diff != "" {
		t.Errorf("kafka (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&config.Kafka{Brokers: []string{"kafka-1:9092", "kafka-2.internal:9093"}}, got.Sinks["bare"].Kafka, plain); diff != "" {
		t.Errorf("bare (-want +got):\n%s", diff)
	}
}

func TestParse_BrokerProblems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, sink, want string }{
		{"nats without url", "type: nats", "s: the nats sink has no url"},
		{
			"nats, all at once",
			"type: nats, url: 'nats://deed:hunter2@h', subject: 'a.{tpoic}', password: hunter2, token: env:NONE, creds: file:no.creds, timeout: 5, max_pending: 0, batch: x, streem: y",
			`s.url: the URL holds a user or password; take it from env: or file:, or give user and password
s.subject: {tpoic} is none of {topic}, {key}, {type} (did you mean "{topic}"?)
s.password: want env:NAME or file:PATH; a secret must not stand in the file itself
s.timeout: 5 has no unit; write it as 30s, 5m or 1h30m
s.max_pending: 0 is not from 1 to 100000
s.batch: want a whole number from 1 to 10000, got text
s.password: wants a user beside it
s.creds: the sink has both token and creds; keep one of them
s.streem: unknown key`,
		},
		{"nats url's scheme", "type: nats, url: env:BAD_URL", "s.url: want a URL that begins with nats://, tls://, ws:// or wss://"},
		{"nats url's host", "type: nats, url: 'nats://a,nats://'", "s.url: the URL names no host"},
		{"nats url", "type: nats, url: 'nats://h:hunter2'", "s.url: not a valid URL"},
		{"user alone", "type: nats, url: 'nats://h', user: deed", "s.user: wants a password beside it"},
		{"subject", "type: nats, url: 'nats://h', subject: a.*", `s.subject: "a.*" is not a subject to publish to, such as events.{topic}`},
		{"empty token", "type: nats, url: 'nats://h', subject: a..b", `s.subject: "a..b" is not a subject to publish to, such as events.{topic}`},
		{"kafka without brokers", "type: kafka", "s: the kafka sink has no brokers"},
		{"a broker is a mapping", "type: kafka, brokers: [k: 9092]", "s.brokers: want text, got a mapping"},
		{"no brokers", "type: kafka, brokers: []", "s.brokers: the list is empty"},
		{
			"kafka, all at once",
			"type: kafka, brokers: [kafka-1, 'kafka-2:0', 'k:9092'], topic: a/b, sasl: {mechanism: gssapi, password: hunter2, x: y}, compression: zst, timeout: 1ms, max_bytes: 5, brokres: []",
			`s.brokers: "kafka-1" is not an address and a port such as kafka-1:9092
s.brokers: "kafka-2:0" is not an address and a port such as kafka-1:9092
s.topic: the name of a Kafka topic is 1 to 249 characters of A-Z a-z 0-9 . _ -, and neither . nor ..
s.sasl: has no user
s.sasl.mechanism: "gssapi" is none of plain, scram-sha-256, scram-sha-512
s.sasl.password: want env:NAME or file:PATH; a secret must not stand in the file itself
s.sasl.x: unknown key
s.compression: "zst" is none of none, gzip, snappy, lz4, zstd (did you mean "zstd"?)
s.timeout: 1ms is not from 1s to 1h
s.max_bytes: 5 is not from 1024 to 67108864
s.brokres: unknown key (did you mean "brokers"?)`,
		},
		{
			"tls", "type: kafka, brokers: ['k:1'], tls: {ca: no.pem, cert: deed.pem, x: y}",
			`s.tls.cert: wants a key beside it
s.tls.x: unknown key
s.tls.ca: no certificate in PEM`,
		},
		{
			"tls pair", "type: kafka, brokers: ['k:1'], tls: {cert: deed.pem, key: no.pem}",
			"s.tls.cert: this and the key are not a certificate and its key in PEM",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseBrokers(t, "topics: {a: {sink: s}}\nsinks: {s: {"+tt.sink+"}}")
			if got != nil || err == nil {
				t.Fatalf("got %v, %v", got, err)
			}
			text := strings.ReplaceAll(err.Error(), "etc/deed.yaml:2: sinks.", "")
			if diff := cmp.Diff(tt.want, text); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if strings.Contains(text, "hunter2") {
				t.Errorf("a secret is repeated: %v", err)
			}
		})
	}
}

// What of a broker's secrets and certificates this machine does not have.
func TestLacks_OfBrokers(t *testing.T) {
	t.Parallel()
	for sink, want := range map[string]string{
		"type: nats, url: 'nats://h', token: env:NONE":      "s.token: the environment variable NONE is not set",
		"type: nats, url: 'nats://h', creds: file:no.creds": `s.creds: file "no.creds": file does not exist`,
		"type: nats, url: env:NONE":                         "s.url: the environment variable NONE is not set",
		"type: kafka, brokers: ['k:1'], tls: {ca: none.pem, cert: empty.pem, key: no.pem}": `s.tls.ca: file "none.pem": file does not exist
s.tls.cert: file "empty.pem" is empty`,
	} {
		c, err := parseBrokers(t, "topics: {a: {sink: s}}\nsinks: {s: {"+sink+"}}")
		if err != nil {
			t.Errorf("%s: %v", sink, err)
			continue
		}
		if got := strings.ReplaceAll(fmt.Sprint(c.Lacks("sinks.s")), "etc/deed.yaml:2: sinks.", ""); got != want {
			t.Errorf("%s: %s, want %s", sink, got, want)
		}
	}
}
