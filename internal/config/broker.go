package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/document"
)

// NATS says how to reach a JetStream. A zero value means that the file says
// nothing.
type NATS struct {
	// URL is one or several with commas between: nats, tls, ws or wss. It may
	// hold a user and a password if it came from env: or file:.
	URL Secret

	Subject  string // may have {topic}, {key} and {type} in it
	User     string
	Password Secret
	Token    Secret
	Creds    Secret // the text of a .creds file
	TLS      *TLS
	Timeout  time.Duration
	Pending  int
	Batch    int
}

// Kafka says how to reach a topic of Kafka. A zero value means that the file
// says nothing.
type Kafka struct {
	Brokers     []string // host:port
	Topic       string
	SASL        SASL
	TLS         *TLS
	Compression string // none, gzip, snappy, lz4 or zstd
	Timeout     time.Duration
	MaxBytes    int
	Pending     int
	Batch       int
}

// SASL is a login.
type SASL struct {
	Mechanism string // plain, scram-sha-256 or scram-sha-512
	User      string
	Password  Secret
}

// TLS is what connections are secured with, in PEM.
type TLS struct {
	CA   []byte // default: the system's
	Cert []byte
	Key  Secret
}

// Client returns the settings of a client's connections.
func (t *TLS) Client() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != nil {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("ca: no certificate in PEM")
		}
	}
	if t.Cert != nil {
		pair, err := tls.X509KeyPair(t.Cert, []byte(t.Key.Reveal()))
		if err != nil {
			return nil, errors.New("cert and key: not a certificate and its key in PEM")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (s *section) nats() *NATS {
	if !s.Has("url") {
		s.Problemf(s.Line, s.Path, "the nats sink has no url")
	}
	n := &NATS{
		URL:      s.natsURL("url"),
		Subject:  s.subject("subject"),
		User:     s.Text("user"),
		Password: s.secret("password"),
		Token:    s.secret("token"),
		Creds:    s.secret("creds"),
		TLS:      s.tls("tls"),
		Timeout:  s.Duration("timeout", time.Second, time.Hour),
		Pending:  s.Number("max_pending", 1, 100_000),
		Batch:    s.Number("batch", 1, 10_000),
	}
	s.needsEachOther("user", "password")
	var ways []string
	for _, key := range []string{"user", "token", "creds"} {
		if s.Has(key) {
			ways = append(ways, key)
		}
	}
	if len(ways) > 1 {
		s.Keyf(ways[1], "the sink has both %s; keep one of them", strings.Join(ways, " and "))
	}
	return n
}

func (s *section) needsEachOther(a, b string) {
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		if s.Has(pair[0]) && !s.Has(pair[1]) {
			s.Keyf(pair[0], "wants a %s beside it", pair[1])
		}
	}
}

// natsURL never repeats the URL in a problem: it may hold credentials.
func (s *section) natsURL(key string) Secret {
	n := s.Get(key)
	if n == nil {
		return Secret{}
	}
	path := document.Join(s.Path, key)
	v := s.TextOf(n, path)
	if v == "" {
		return Secret{}
	}
	value, isReference := s.reader.reference(n, path)
	if !isReference {
		value = Secret{&v}
	}
	if value.Reveal() == "" {
		return Secret{}
	}
	for one := range strings.SplitSeq(value.Reveal(), ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err != nil:
			s.Keyf(key, "not a valid URL")
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			s.Keyf(key, "want a URL that begins with nats://, tls://, ws:// or wss://")
		case u.Hostname() == "":
			s.Keyf(key, "the URL names no host")
		case u.User != nil && !isReference:
			s.Keyf(key, "the URL holds a user or password; take it from env: or file:, or give user and password")
		}
	}
	return value
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

func (s *section) subject(key string) string {
	v := s.Text(key)
	for _, word := range placeholder.FindAllString(v, -1) {
		if words := []string{"{topic}", "{key}", "{type}"}; !slices.Contains(words, word) {
			s.Keyf(key, "%s is none of %s%s", word, strings.Join(words, ", "), s.DidYouMean(word, words))
			return ""
		}
	}
	sample := placeholder.ReplaceAllString(v, "x")
	if slices.Contains(strings.Split(sample, "."), "") && v != "" || strings.ContainsAny(sample, " \t\r\n*>{}\x00") || len(v) > 1000 {
		s.Keyf(key, "%q is not a subject to publish to, such as events.{topic}", v)
		return ""
	}
	return v
}

var kafkaTopic = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`) })

func (s *section) kafka() *Kafka {
	k := &Kafka{}
	s.Texts("brokers", func(v string, line int) {
		host, port, err := net.SplitHostPort(v)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
			s.Problemf(line, document.Join(s.Path, "brokers"), "%q is not an address and a port such as kafka-1:9092", v)
		}
		k.Brokers = append(k.Brokers, v)
	})
	switch e, ok := s.Entry("brokers"); {
	case !ok:
		s.Problemf(s.Line, s.Path, "the kafka sink has no brokers")
	case e.Value.Kind == document.List && len(e.Value.Items) == 0:
		s.Keyf("brokers", "the list is empty")
	}
	k.Topic = s.Text("topic")
	if k.Topic != "" && (!kafkaTopic().MatchString(k.Topic) || k.Topic == "." || k.Topic == "..") {
		s.Keyf("topic", "the name of a Kafka topic is 1 to 249 characters of A-Z a-z 0-9 . _ -, and neither . nor ..")
	}
	if sasl := s.sub("sasl"); sasl != nil {
		for _, key := range []string{"mechanism", "user", "password"} {
			if !sasl.Has(key) {
				sasl.Problemf(sasl.Line, sasl.Path, "has no %s", key)
			}
		}
		k.SASL = SASL{
			Mechanism: sasl.Choice("mechanism", "plain", "scram-sha-256", "scram-sha-512"),
			User:      sasl.Text("user"),
			Password:  sasl.secret("password"),
		}
		sasl.Done()
	}
	k.TLS = s.tls("tls")
	k.Compression = s.Choice("compression", "none", "gzip", "snappy", "lz4", "zstd")
	k.Timeout = s.Duration("timeout", time.Second, time.Hour)
	k.MaxBytes = s.Number("max_bytes", 1024, 64<<20)
	k.Pending = s.Number("max_pending", 1, 1_000_000)
	k.Batch = s.Number("batch", 1, 10_000)
	return k
}

// tls reads {ca: PATH, cert: PATH, key: PATH}; {} asks for TLS with the
// system's authorities.
func (s *section) tls(key string) *TLS {
	sub := s.sub(key)
	if sub == nil {
		return nil
	}
	t := &TLS{CA: sub.pem("ca"), Cert: sub.pem("cert")}
	if b := sub.pem("key"); b != nil {
		text := string(b)
		t.Key = Secret{&text}
	}
	sub.needsEachOther("cert", "key")
	sub.Done()
	if _, err := (&TLS{CA: t.CA}).Client(); err != nil {
		sub.Keyf("ca", "no certificate in PEM")
	}
	if t.Cert != nil && t.Key.Reveal() != "" {
		if _, err := (&TLS{Cert: t.Cert, Key: t.Key}).Client(); err != nil {
			sub.Keyf("cert", "this and the key are not a certificate and its key in PEM")
		}
	}
	return t
}

// pem reads the file at a path, relative to the folder of deed.yaml.
func (s *section) pem(key string) []byte {
	file := s.Text(key)
	if file == "" {
		return nil
	}
	at := file
	if !filepath.IsAbs(at) {
		at = filepath.Join(filepath.Dir(s.File), at)
	}
	data, err := s.reader.readFile(at)
	if err != nil {
		s.reader.lackf(s.LineOf(key), document.Join(s.Path, key), "file %q: %s", file, cause(err))
		return nil
	}
	if len(data) == 0 {
		s.reader.lackf(s.LineOf(key), document.Join(s.Path, key), "file %q is empty", file)
		return nil
	}
	return data
}
