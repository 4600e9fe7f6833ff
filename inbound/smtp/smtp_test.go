package smtp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	netsmtp "net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/inbound/smtp"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// serve receives mail for a receiver that answers each with its text, and returns where.
func serve(t *testing.T, db *pgtest.DB, change func(*smtp.Options, *inbound.SourceOptions)) (address string) {
	t.Helper()
	db.Providers(t, "fake", "mail")
	source := inbound.SourceOptions{
		Executor: func(_ context.Context, m inbound.Message) (inbound.Result, error) {
			return inbound.Say("You wrote: " + m.Text), nil
		},
		Reply: inbound.ReplyBy{Provider: "mail", Channel: delivery.Email}, PerHour: 10,
	}
	opts := smtp.Options{
		Source: "replies", Addresses: []string{"Help@example.com", "@reply.example.com"}, Names: []string{"mx.example.com"},
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, MaxBytes: 64 << 10,
	}
	if change != nil {
		change(&opts, &source)
	}
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 6), inbound.Options{
		Sources: map[string]inbound.SourceOptions{"replies": source}, Wait: time.Minute, Deadline: 25 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := smtp.New(r, opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- r.Run(ctx) }()
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	if !pgtest.Wait(pgtest.Patience, func() bool { return r.Ready() == nil }) {
		t.Fatal("the receiver is not ready")
	}
	return l.Addr().String()
}

// vouched is a mail that the relay has found to be from its author's domain.
func vouched(from, id, rest string) string {
	domain := from[strings.LastIndexByte(from, '@')+1:]
	return fmt.Sprintf("Authentication-Results: mx.example.com; spf=pass smtp.mailfrom=x; dmarc=pass (p=reject) header.from=%s\r\nFrom: Ann <%s>\r\nMessage-ID: %s\r\nTo: help@example.com\r\n%s",
		domain, from, id, rest)
}

func state(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(concat_ws(' ', m.sender, m.status, (select count(*) from deed.channel_outbox c where c.channel_message_id = m.id)), ', ' order by m.turn), '')
		from deed.channel_messages m`)
}

// A mail is executed once and answered in its thread, however often it is brought.
func TestServer_AMailIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	address := serve(t, db, nil)
	mail := vouched("Ann@Example.org", "<1@example.org>", "Subject: =?utf-8?q?Where_is_it=3F?=\r\nReferences: <0@example.com> <0@example.com>\r\n"+
		"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n--c\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe\r\n--c\r\n"+
		"Content-Type: text/html\r\n\r\n<b>x</b>\r\n--c--\r\n--b\r\nContent-Type: image/png\r\nContent-Disposition: attachment; filename=a.png\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--b--\r\n")
	for range 2 {
		if err := netsmtp.SendMail(address, nil, "ann@example.org", []string{"HELP@example.com"}, []byte(mail)); err != nil {
			t.Fatal(err)
		}
	}
	if got := state(t, db); got != "ann@example.org executed 1" {
		t.Errorf("messages: %s", got)
	}
	body := pgtest.One[string](t, db.Pool(pgtest.Owner), `select body from deed.channel_messages`)
	for _, part := range []string{`"subject":"Where is it?"`, `"text":"Grüße"`, `"name":"a.png"`, `"bytes":3`, `"to":["help@example.com"]`} {
		if !strings.Contains(body, part) {
			t.Errorf("the body lacks %s: %s", part, body)
		}
	}
	reply := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select concat_ws(' | ', recipient, payload ->> 'subject', payload ->> 'text', payload -> 'headers' ->> 'In-Reply-To', payload -> 'headers' ->> 'References', payload -> 'headers' ->> 'Auto-Submitted')
		from deed.channel_outbox`)
	if reply != "Ann@Example.org | Re: Where is it? | You wrote: Grüße | <1@example.org> | <0@example.com> <0@example.com> <1@example.org> | auto-replied" {
		t.Errorf("answered: %s", reply)
	}
}

// A relay may bring a mail for each of its addresses by itself: that is a message for each, and
// what comes again for the same addresses, in whatever order, is a repeat.
func TestServer_AMailForTwoAddresses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	address := serve(t, db, nil)
	const seventeen, eighteen = "order-17@reply.example.com", "order-18@reply.example.com"
	for id, rest := range map[string]string{"<1@example.org>": "one", "": "without an id"} {
		mail := vouched("ann@example.org", id, "Subject: order\r\n\r\n"+rest+"\r\n")
		for range 2 {
			for _, to := range [][]string{{seventeen}, {eighteen}, {seventeen, eighteen}, {strings.ToUpper(eighteen), seventeen, eighteen}} {
				if err := netsmtp.SendMail(address, nil, "ann@example.org", to, []byte(mail)); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select string_agg(concat_ws(' ', status, body::jsonb ->> 'to'), ', ' order by turn) from deed.channel_messages where text = '`+rest+`'`)
		if want := `executed ["order-17@reply.example.com"], executed ["order-18@reply.example.com"], executed ["order-17@reply.example.com", "order-18@reply.example.com"]`; got != want {
			t.Errorf("%s: messages: %s", rest, got)
		}
	}
}

// What is refused, and what is taken and passed over: nothing of it is stored.
func TestServer_WhatIsNobodys(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	address := serve(t, db, nil)
	good := "Subject: x\r\n\r\nhello\r\n"
	for what, c := range map[string]struct {
		from, to, mail, want string
	}{
		"no such address":           {"ann@example.org", "other@example.com", vouched("ann@example.org", "<2@x>", good), "550"},
		"another domain's address":  {"ann@example.org", "help@evilreply.example.com.evil", vouched("ann@example.org", "<2@x>", good), "550"},
		"nobody vouches":            {"ann@example.org", "help@example.com", "From: ann@example.org\r\n" + good, "550"},
		"it failed":                 {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=fail header.from=example.org\r\nFrom: ann@example.org\r\n" + good, "550"},
		"another's word":            {"ann@example.org", "help@example.com", "Authentication-Results: mx.evil.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\n" + good, "550"},
		"the relay's word is first": {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=fail header.from=example.org\r\nAuthentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\n" + good, "550"},
		"of another domain":         {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=pass header.from=evil.com\r\nFrom: ann@example.org\r\n" + good, "550"},
		"in a comment":              {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com (; dmarc=pass header.from=example.org); dmarc=none header.from=example.org\r\nFrom: ann@example.org\r\n" + good, "550"},
		"in quotes":                 {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; spf=pass reason=\"; dmarc=pass header.from=example.org\"\r\nFrom: ann@example.org\r\n" + good, "550"},
		"two authors":               {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org, bob@example.org\r\n" + good, "554"},
		"two Message-ID":            {"ann@example.org", "help@example.com", "Message-ID: <2@x>\r\nAuthentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\nMessage-ID: <1@x>\r\n" + good, "554"},
		"two Content-Type":          {"ann@example.org", "help@example.com", "Content-Type: text/html\r\nAuthentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\nContent-Type: text/plain\r\n" + good, "554"},
		"two From":                  {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\nFrom: bob@example.org\r\n" + good, "554"},
		"a blank behind From":       {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\nFrom : bob@example.org\r\n" + good, "554"},
		"a fold behind From":        {"ann@example.org", "help@example.com", "Authentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\nFrom\r\n : bob@example.org\r\n" + good, "554"},
		"a tab behind Message-ID":   {"ann@example.org", "help@example.com", vouched("ann@example.org", "<2@x>", "Message-ID\t: <1@x>\r\n"+good), "554"},
		"a NUL in a name":           {"ann@example.org", "help@example.com", vouched("ann@example.org", "<2@x>", "Subject\x00: y\r\n"+good), "554"},
		"a name that is no ASCII":   {"ann@example.org", "help@example.com", vouched("ann@example.org", "<2@x>", "Subject\u00a0: y\r\n"+good), "554"},
		"no mail":                   {"ann@example.org", "help@example.com", "nonsense", "554"},
		"too big":                   {"ann@example.org", "help@example.com", vouched("ann@example.org", "<3@x>", "Subject: x\r\n\r\n"+strings.Repeat("x\r\n", 40<<10)), "552"},
		"null sender":               {"", "help@example.com", vouched("ann@example.org", "<4@x>", good), ""},
		"automatic":                 {"ann@example.org", "help@example.com", vouched("ann@example.org", "<5@x>", "Auto-Submitted: auto-replied\r\n"+good), ""},
		"a list":                    {"ann@example.org", "x@reply.example.com", vouched("ann@example.org", "<6@x>", "List-Id: <a.b>\r\n"+good), ""},
		"bulk":                      {"ann@example.org", "help@example.com", vouched("ann@example.org", "<7@x>", "Precedence: bulk\r\n"+good), ""},
		"a report":                  {"ann@example.org", "help@example.com", vouched("ann@example.org", "<8@x>", "Content-Type: multipart/report; boundary=b\r\n"+good), ""},
	} {
		err := netsmtp.SendMail(address, nil, c.from, []string{c.to}, []byte(c.mail))
		if c.want == "" && err != nil || c.want != "" && !strings.HasPrefix(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if got := state(t, db); got != "" {
		t.Errorf("stored: %s", got)
	}
	if err := netsmtp.SendMail(address, nil, "ann@example.org", []string{"ticket+7@Reply.example.com"}, []byte(vouched("ann@example.org", "<9@x>", good))); err != nil {
		t.Errorf("an address of the domain: %v", err)
	}
	stranger := serve(t, pgtest.New(t), func(o *smtp.Options, _ *inbound.SourceOptions) {
		o.Trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	if err := netsmtp.SendMail(stranger, nil, "ann@example.org", []string{"help@example.com"}, []byte(vouched("ann@example.org", "<9@x>", good))); !strings.HasPrefix(fmt.Sprint(err), "554") {
		t.Errorf("of a relay that is not trusted: %v", err)
	}
}

// Others than the relays take none of the places for them, however many come.
func TestServer_StrangersTakeNoPlaces(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	address := serve(t, db, func(o *smtp.Options, _ *inbound.SourceOptions) {
		o.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 150 {
		c, err := stranger.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	relay, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	_ = relay.SetDeadline(time.Now().Add(45 * time.Second)) // who says nothing is sent away after a minute
	greeting := make([]byte, 3)
	if _, err := io.ReadFull(relay, greeting); err != nil || string(greeting) != "220" {
		t.Errorf("the relay is greeted with %q, %v", greeting, err)
	}
}

// Two programs that answer each other end: the eleventh mail of somebody in an hour is
// answered by nobody.
func TestServer_TenInAnHour(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	address := serve(t, db, nil)
	for i := range 12 {
		if err := netsmtp.SendMail(address, nil, "a@example.org", []string{"help@example.com"}, []byte(vouched("a@example.org", fmt.Sprintf("<%d@x>", i), "\r\nhello\r\n"))); err != nil {
			t.Fatal(err)
		}
	}
	got := state(t, db)
	if strings.Count(got, "executed 1") != 10 || strings.Count(got, "denied_too_many 0") != 2 {
		t.Errorf("messages: %s", got)
	}
}

// A mail that fails is to be brought again, and is answered then.
func TestServer_WhatFailsIsBroughtAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	address := serve(t, db, func(_ *smtp.Options, s *inbound.SourceOptions) {
		s.Executor = func(_ context.Context, m inbound.Message) (inbound.Result, error) {
			if m.Attempt == 1 {
				return inbound.Result{}, fmt.Errorf("no")
			}
			return inbound.Say("x"), nil
		}
	})
	mail := []byte(vouched("a@example.org", "<1@x>", "\r\nhello\r\n"))
	if err := netsmtp.SendMail(address, nil, "a@example.org", []string{"help@example.com"}, mail); !strings.HasPrefix(fmt.Sprint(err), "451") {
		t.Errorf("at first: %v", err)
	}
	if err := netsmtp.SendMail(address, nil, "a@example.org", []string{"help@example.com"}, mail); err != nil {
		t.Errorf("again: %v", err)
	}
	if got := state(t, db); got != "a@example.org executed 1" {
		t.Errorf("messages: %s", got)
	}
}

// Who asks for TLS gets it.
func TestServer_StartTLS(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"mail.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, db, func(o *smtp.Options, _ *inbound.SourceOptions) {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	})
	c, err := netsmtp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	if err := c.StartTLS(&tls.Config{RootCAs: roots, ServerName: "mail.example.com", MinVersion: tls.VersionTLS12}); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(c.Mail("a@example.org"), c.Rcpt("help@example.com"))
	w, dataErr := c.Data()
	if err = errors.Join(err, dataErr); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, vouched("a@example.org", "<1@x>", "\r\nhello\r\n"))
	if err = errors.Join(err, w.Close(), c.Quit()); err != nil {
		t.Fatal(err)
	}
	if got := state(t, db); got != "a@example.org executed 1" {
		t.Errorf("messages: %s", got)
	}
}

func TestNew_WhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := smtp.New(nil, smtp.Options{MaxBytes: 1})
	for _, name := range []string{"Source", "Addresses", "Trusted", "Names", "MaxBytes"} {
		if !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}
