package smtp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/smtp"
)

const (
	someDelivery = "01a1fe76-14ee-7f1b-b119-532699ab7d4c"
	eventSecret  = "the secret of the return path"
)

func withBounces(t testing.TB, template, secret string) *smtp.Provider {
	t.Helper()
	p, err := smtp.New(smtp.Options{Address: "localhost:25", From: "Ann <ann@example.com>", ReturnPath: template, EventSecret: secret})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// returnOf renders an e-mail and says what its envelope has as the sender.
func returnOf(t testing.TB, p *smtp.Provider) (address string, message []byte) {
	t.Helper()
	return returnFor(t, p, someDelivery)
}

func returnFor(t testing.TB, p *smtp.Provider, id string) (address string, message []byte) {
	t.Helper()
	request, err := p.Render(delivery.Draft{
		ID: id, Key: "deed-key", Recipient: "bob@example.org", Payload: delivery.EmailPayload{Subject: "Grüße", Text: "Hello Bob"}.JSON(),
	})
	if err != nil {
		t.Fatal(err)
	}
	first, message, _ := bytes.Cut(request, []byte("\n"))
	var e struct {
		From string `json:"mail_from"`
		ID   string `json:"message_id"`
	}
	if err := json.Unmarshal(first, &e); err != nil {
		t.Fatal(err)
	}
	if e.ID != "deed-key@example.com" {
		t.Errorf("the message id is %q", e.ID)
	}
	return e.From, message
}

// fixture is a mail of testdata/dsn that came to an address.
func fixture(t testing.TB, name, to string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata/dsn", name+".eml"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("RETURN"), []byte(to)), []byte("\n"), []byte("\r\n"))
}

// What servers say, in their own words.
func TestReadMail_WhatServersSay(t *testing.T) {
	t.Parallel()
	p := withBounces(t, "Bounce+{id}@bounces.example.com", eventSecret)
	to, _ := returnOf(t, p)
	for name, want := range map[string][]string{
		"postfix-failed":    {"bounced 5.1.1 550 5.1.1 <bob@example.org>: Recipient address rejected: User unknown in local recipient table"},
		"postfix-delayed":   {"soft_bounced 4.4.1 connect to mx.example.org[192.0.2.25]:25: Connection timed out"},
		"postfix-delivered": {"delivered  "},
		"postfix-no-code":   {"soft_bounced 5.0.0 550 sorry, no mailbox here"},
		"exim-failed":       {"soft_bounced 5.2.2 552 5.2.2 <bob@example.org>: mailbox is full"},
		"exim-plain":        {"bounced 5.1.1 host mx.example.org [192.0.2.25]: 550 5.1.1 <bob@example.org>:"},
		"exchange-failed":   {"bounced 5.1.10 550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient bob@example.org not found by SMTP address lookup"},
		"exchange-policy":   {"dropped 5.7.133 550 5.7.133 RESOLVER.RST.SenderNotAuthenticatedForGroup; authentication required; Delivery restriction check failed"},
		"rfc3464-several":   {"soft_bounced 5.1.1 550 no such user here", "delivered  "},
		"qmail-plain":       {"bounced 5.1.1 Sorry, no mailbox here by that name. (#5.1.1)"},
		"vacation":          nil,
	} {
		raw := fixture(t, name, to)
		told, err := p.ReadMail(strings.ToUpper(to), raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, e := range told.Events {
			got = append(got, string(e.Said)+" "+e.Code+" "+e.Reason)
			if e.Delivery != someDelivery || e.Address != "bob@example.org" && !strings.HasSuffix(name, "plain") || e.ID == "" || e.At.IsZero() && name != "qmail-plain" {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (told.Other > 0) != (want == nil) {
			t.Errorf("%s: %d others", name, told.Other)
		}
	}
	for name, raw := range map[string]string{"nothing": "", "no mail": "nonsense", "no headers": "\r\n\r\nhello"} {
		if told, err := p.ReadMail(to, []byte(raw)); err == nil {
			t.Errorf("%s was read: %+v", name, told)
		}
	}
	odd := bytes.Replace(fixture(t, "postfix-failed", to), []byte("Message-Id: <"), []byte("Message-Id: <\x1b[2J\u009b"), 1)
	if told, err := p.ReadMail(to, odd); err != nil || len(told.Events) != 1 || strings.ContainsFunc(told.Events[0].ID, unicode.IsControl) || !strings.Contains(told.Events[0].ID, "[2J") {
		t.Errorf("an id that steers a terminal: %+v, %v", told, err)
	}
	if told, err := p.ReadMail(to, append(fixture(t, "postfix-failed", to)[:1900], "\x00\xff"...)); err != nil || len(told.Events) > 1 {
		t.Errorf("what was cut: %+v, %v", told, err)
	}
}

// An address is known again however its case was changed, and nobody makes one up.
func TestReturnPath_IsSigned(t *testing.T) {
	t.Parallel()
	p := withBounces(t, "bounce+{id}@example.com", eventSecret)
	to, message := returnOf(t, p)
	if local, _, _ := strings.Cut(to, "@"); len(local) > 64 || !strings.HasPrefix(local, "bounce+") {
		t.Errorf("%q has %d characters", to, len(local))
	}
	if _, err := mail.ParseAddress(to); err != nil {
		t.Error(err)
	}
	if bytes.Contains(message, []byte(to)) || !bytes.Contains(message, []byte("From: \"Ann\" <ann@example.com>")) {
		t.Errorf("the message itself:\n%s", message)
	}
	read := func(p *smtp.Provider, to string) error {
		_, err := p.ReadMail(to, fixture(t, "postfix-failed", to))
		return err
	}
	if err := errors.Join(read(p, to), read(p, strings.ToUpper(to))); err != nil {
		t.Error(err)
	}
	for i := len("bounce+"); i < strings.IndexByte(to, '@'); i++ {
		forged := []byte(to)
		if forged[i]++; forged[i] > 'z' || forged[i] > '7' && forged[i] < 'a' {
			forged[i] = 'b'
		}
		if err := read(p, string(forged)); !errors.Is(err, delivery.ErrUnverified) {
			t.Errorf("%s: %v", forged, err)
		}
	}
	for _, other := range []string{"bounce+@example.com", "bounce+x@example.com", "bounce+" + to, "ann@example.com", "", strings.Replace(to, "@", "aaaaaaaa@", 1)} {
		if err := read(p, other); !errors.Is(err, delivery.ErrUnverified) {
			t.Errorf("%q: %v", other, err)
		}
	}
	if err := read(withBounces(t, "bounce+{id}@example.com", eventSecret+"2"), to); !errors.Is(err, delivery.ErrUnverified) {
		t.Errorf("another's secret: %v", err)
	}
	// A new secret signs, and the former one is known as long as it is given.
	rotated, err := smtp.New(smtp.Options{Address: "localhost:25", From: "ann@example.com", ReturnPath: "bounce+{id}@example.com", EventSecret: eventSecret + "2", PreviousEventSecret: eventSecret})
	if err != nil {
		t.Fatal(err)
	}
	later, _ := returnOf(t, rotated)
	if err := errors.Join(read(rotated, to), read(rotated, later)); err != nil || later == to {
		t.Errorf("with a new secret, %s and %s: %v", to, later, err)
	}
	if err := read(p, later); !errors.Is(err, delivery.ErrUnverified) {
		t.Errorf("of the new secret, by who has the former one: %v", err)
	}
	for _, bad := range []smtp.Options{
		{ReturnPath: "bounce@example.com", EventSecret: eventSecret},
		{ReturnPath: "a@{id}.example.com", EventSecret: eventSecret},
		{ReturnPath: "{id}{id}@example.com", EventSecret: eventSecret},
		{ReturnPath: strings.Repeat("x", 23) + "{id}@example.com", EventSecret: eventSecret},
		{ReturnPath: "b{id}@example.com"},
		{ReturnPath: "b{id}@example.com", EventSecret: "short"},
		{ReturnPath: "{id}", EventSecret: eventSecret},
		{ReturnPath: "b{id}@example.com", EventSecret: eventSecret, PreviousEventSecret: "short"},
		{ReturnPath: "Bob <b{id}@example.com>", EventSecret: eventSecret},
	} {
		bad.Address = "localhost:25"
		if _, err := smtp.New(bad); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// A reader that is not ours reads the same of the mails that servers send, and of those that
// we send.
func TestReadMail_PythonReadsTheSame(t *testing.T) {
	t.Parallel()
	p := withBounces(t, "bounce+{id}@example.com", eventSecret)
	to, message := returnOf(t, p)
	dir := t.TempDir()
	names := []string{"postfix-failed", "postfix-delayed", "postfix-delivered", "exim-failed", "exchange-failed", "exchange-policy", "rfc3464-several", "qmail-plain", "ours"}
	args := []string{"testdata/read.py"}
	for _, name := range names {
		raw := message
		if name != "ours" {
			raw = fixture(t, name, to)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	out, err := exec.CommandContext(t.Context(), "python3", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for _, name := range names {
		var m struct {
			Subject, From, To, Text string
			Defects                 []string
			Reports                 [][2]string
		}
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if len(m.Defects) > 0 {
			t.Errorf("%s: %q", name, m.Defects)
		}
		if name == "ours" {
			if m.Subject != "Grüße" || m.From != "Ann <ann@example.com>" || m.To != "bob@example.org" || strings.TrimSpace(m.Text) != "Hello Bob" {
				t.Errorf("ours: %+v", m)
			}
			continue
		}
		told, err := p.ReadMail(to, fixture(t, name, to))
		if err != nil || name != "qmail-plain" && len(told.Events) != len(m.Reports) {
			t.Errorf("%s: %d reports, ours has %+v, %v", name, len(m.Reports), told, err)
			continue
		}
		for i, r := range m.Reports {
			action := map[delivery.Said]string{delivery.SaidDelivered: "delivered"}[told.Events[i].Said]
			if r[0] == "delayed" && told.Events[i].Said == delivery.SaidSoftBounced {
				action = "delayed"
			} else if action == "" {
				action = "failed"
			}
			if action != r[0] || told.Events[i].Code != r[1] && told.Events[i].Code != "" && r[1] != "5.0.0" {
				t.Errorf("%s: %q, ours is %+v", name, r, told.Events[i])
			}
		}
	}
}

// Whatever comes, it is read or refused, and what it says is of the address's delivery.
func FuzzReadMail(f *testing.F) {
	p := withBounces(f, "bounce+{id}@example.com", eventSecret)
	to, _ := returnOf(f, p)
	for _, name := range []string{"postfix-failed", "exim-plain", "rfc3464-several", "exchange-failed", "vacation"} {
		f.Add(fixture(f, name, to))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		told, err := p.ReadMail(to, raw)
		if err != nil {
			return
		}
		for _, e := range told.Events {
			if e.Delivery != someDelivery || len(e.ID) > 255 || strings.ContainsFunc(e.ID, unicode.IsControl) || strings.ContainsRune(e.Address, 0) {
				t.Errorf("%+v", e)
			}
		}
	})
}
