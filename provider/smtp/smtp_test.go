package smtp_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"mime"
	"mime/multipart"
	"net"
	"net/mail"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/smtp"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const password = "pa55-of-the-relay"

var payload = delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "hello", Text: "canary-7f3a\r\n.\r\nafter a dot"}.JSON()

// certificate is for 127.0.0.1, signed by itself.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "catcher"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots}
}

// serve starts a catcher with STARTTLS and a password.
func serve(t testing.TB) (*catcher.SMTP, *providertest.Gate, smtp.Options) {
	t.Helper()
	server, client := certificate(t)
	s := &catcher.SMTP{Mailbox: &catcher.Mailbox{}, User: "deed", Password: password, TLS: server}
	gate := providertest.NewGate(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, gate) }()
	t.Cleanup(func() {
		cancel()
		_ = gate.Close()
		if err := <-done; err != nil {
			t.Errorf("the catcher ended with %v", err)
		}
	})
	return s, gate, smtp.Options{Address: gate.Addr().String(), User: "deed", Password: password, TLS: client}
}

func newHarness(t *testing.T) providertest.Harness {
	s, gate, opts := serve(t)
	p, err := smtp.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return providertest.Harness{
		Provider: p, Channel: delivery.Email, Recipient: "bob@example.org", Sandbox: "me@example.com", Payload: payload, Secrets: []string{password},
		Accepted: func() (list [][]byte) {
			for _, m := range s.Mailbox.List() {
				list = append(list, m.Raw)
			}
			return list
		},
		Recipients: func() (list []string) {
			for _, m := range s.Mailbox.List() {
				list = append(list, m.To...)
			}
			return list
		},
		Calls: s.Faults.Count,
		Fail:  func(how providertest.Fault, times int) { s.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.HangBefore, providertest.HangAccepted, providertest.ResetBefore,
			providertest.ResetAccepted, providertest.CutAfterOK, providertest.BadAddress,
		},
		Down: gate.Down, Up: gate.Up,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, newHarness, nil)
}

func render(t testing.TB, e delivery.EmailPayload) []byte {
	t.Helper()
	p, err := smtp.New(smtp.Options{Address: "localhost:25", From: "Ann <ann@example.com>"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Render(delivery.Draft{
		ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Key: "deed-key", Recipient: "bob@example.org", Payload: e.JSON(), At: time.Date(2026, 3, 20, 9, 0, 7, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The bytes of a plain message; testdata names the rules they follow.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	got := render(t, delivery.EmailPayload{
		Subject: "Grüße", Text: "Hello Bob,\r\n.\r\nà bientôt\r\n", Headers: map[string]string{"List-Unsubscribe": "<https://example.com/u/1>"},
	})
	text, err := os.ReadFile("testdata/message.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, want, ok := bytes.Cut(text, []byte("\n---\n"))
	if !ok || !bytes.HasPrefix(text, []byte("Source: ")) {
		t.Fatal("testdata/message.txt names no source")
	}
	if diff := cmp.Diff(string(want), strings.ReplaceAll(string(got), "\r\n", "\n")); diff != "" {
		t.Error(diff)
	}
	if bytes.Count(got, []byte("\n")) != bytes.Count(got, []byte("\r\n"))+1 {
		t.Error("a line of the message does not end in CRLF")
	}
}

// Text and HTML are alternatives that other software reads.
func TestRender_Alternatives(t *testing.T) {
	t.Parallel()
	_, message, _ := bytes.Cut(render(t, delivery.EmailPayload{Subject: "both", Text: "plain", HTML: "<b>rich</b>"}), []byte("\n"))
	m, err := mail.ReadMessage(bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	media, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || media != "multipart/alternative" {
		t.Fatal(media, err)
	}
	var parts []string
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := r.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part.Header.Get("Content-Type")+" "+string(text))
	}
	if len(parts) != 2 || !strings.HasPrefix(parts[0], "text/plain") || !strings.Contains(parts[1], "<b>rich</b>") {
		t.Errorf("%q", parts)
	}
}

// Nothing that a user writes gets into the headers, or ends them.
func TestRender_Injection(t *testing.T) {
	t.Parallel()
	p, err := smtp.New(smtp.Options{Address: "localhost:25", From: "ann@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		recipient string
		e         delivery.EmailPayload
	}{
		"subject":   {"bob@example.org", delivery.EmailPayload{Subject: "a\r\nBcc: x@y.z", Text: "x"}},
		"from":      {"bob@example.org", delivery.EmailPayload{From: "a@b.c\r\nBcc: x@y.z", Subject: "a", Text: "x"}},
		"recipient": {"bob@example.org>\r\nRCPT TO:<x@y.z", delivery.EmailPayload{Subject: "a", Text: "x"}},
		"header":    {"bob@example.org", delivery.EmailPayload{Subject: "a", Text: "x", Headers: map[string]string{"X": "a\r\nBcc: x@y.z"}}},
		"name":      {"bob@example.org", delivery.EmailPayload{Subject: "a", Text: "x", Headers: map[string]string{"X: y\r\nBcc": "x@y.z"}}},
		"own":       {"bob@example.org", delivery.EmailPayload{Subject: "a", Text: "x", Headers: map[string]string{"Message-Id": "x"}}},
		"reply":     {"bob@example.org", delivery.EmailPayload{ReplyTo: "x\r\ny@z.a", Subject: "a", Text: "x"}},
	} {
		if got, err := p.Render(delivery.Draft{Recipient: c.recipient, Payload: c.e.JSON()}); err == nil {
			t.Errorf("%s is taken:\n%s", name, got)
		}
	}
}

// Connections are used again, and one that has died meanwhile costs nothing.
func TestSend_ReusesConnections(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	s, _, opts := serve(t)
	p, err := smtp.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	h.Provider = p
	h.Accepted = nil
	providertest.DeliverMany(t, h, 40)
	// Four connections have a session before STARTTLS and one after it; a server that has no processor for two seconds is left for another one.
	if n := s.Sessions(); n > 20 || len(s.Mailbox.List()) != 40 {
		t.Errorf("%d sessions for %d messages", n, len(s.Mailbox.List()))
	}
}

// In the clear nothing is sent to a server that does not offer STARTTLS; and a
// wrong password is an outage, not the end of every delivery.
func TestCheck(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, _, opts := serve(t)
	opts.From = "ann@example.com"
	check := func(opts smtp.Options) []delivery.Check {
		t.Helper()
		p, err := smtp.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Check(ctx)
	}
	if list := check(opts); len(list) != 3 || !list[0].OK || !list[1].OK || !list[2].OK {
		t.Errorf("%+v", list)
	}
	wrong := opts
	wrong.Password = "wrong-secret"
	if list := check(wrong); len(list) != 1 || list[0].OK || !strings.Contains(list[0].Info, "535") || strings.Contains(list[0].Info, "wrong-secret") {
		t.Errorf("%+v", list)
	}
	unknown := opts
	unknown.TLS = nil
	if list := check(unknown); len(list) != 1 || list[0].OK || !strings.Contains(list[0].Info, "certificate") {
		t.Errorf("%+v", list)
	}
	s.TLS = nil
	plain := &catcher.SMTP{Mailbox: s.Mailbox}
	gate := providertest.NewGate(t)
	pctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- plain.Serve(pctx, gate) }()
	defer func() {
		stop()
		_ = gate.Close()
		<-done
	}()
	if list := check(smtp.Options{Address: gate.Addr().String()}); len(list) != 1 || list[0].OK || !strings.Contains(list[0].Info, "STARTTLS") {
		t.Errorf("%+v", list)
	}
}

func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := smtp.New(smtp.Options{Address: "localhost", Security: "perhaps", User: "u", From: "no", PerConnection: -1})
	for _, want := range []string{"Address", "Security", "Password", "From", "PerConnection"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
}

// A request that was stored under other rules, or by a version that had none, is
// refused for good, and says why; nobody is called.
func TestSend_StoredHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	lax, err := smtp.New(smtp.Options{Address: "localhost:25", HeadersAllowed: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	h.Provider = stored{Provider: h.Provider, render: lax}
	h.Payload = delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "Hello", Text: "canary-7f3a", Headers: map[string]string{"X-SMTPAPI": "{}", "References": "<1@example.com>"}}.JSON()
	e := providertest.Deliver(t, h)
	if e.Status != delivery.Failed || !strings.Contains(e.LastError, "X-S") || !strings.Contains(e.LastError, "headers_allowed") || len(h.Accepted()) != 0 {
		t.Errorf("%s with %q", e.Status, e.LastError)
	}
}

// stored is a provider whose requests another one has made.
type stored struct {
	delivery.Provider
	render delivery.Provider
}

func (s stored) Render(d delivery.Draft) ([]byte, error) { return s.render.Render(d) }
