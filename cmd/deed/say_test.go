package main

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/config"
)

// What deed dev say sends is what each kind of source takes for a message of its
// platform.
func TestSay_AsPlatformsDo(t *testing.T) {
	t.Parallel()
	const secret = "a secret of sixteen"
	fields := config.Fields{Sender: "$.who.id", Text: "$.text"}
	for name, s := range map[string]config.Source{
		"telegram": {Type: "telegram", Secret: config.Known("a-secret-of-telegram")},
		"slack":    {Type: "slack"},
		"whatsapp": {Type: "whatsapp", VerifyToken: config.Known("token")},
		"standard": {Type: "webhook", Fields: fields},
		"hmac": {
			Type: "webhook", Signature: config.Signature{Scheme: "hmac", Header: "X-Sum", Prefix: "sha256="},
			Fields: config.Fields{ID: "$.id", Sender: "$.who.id", Text: "$.text"},
		},
		"hmac over headers": {
			Type: "webhook", Signature: config.Signature{Scheme: "hmac", Header: "X-Sum", Encoding: "base64", Timestamp: "X-Time", Signed: "{header:X-Id}.{timestamp}.{body}"},
			Fields: config.Fields{ID: "header:X-Id", Sender: "$.who.id", Text: "$.text"},
		},
		"deed dev's own": devSourceConfig,
	} {
		if s.Secret == (config.Secret{}) {
			s.Secret = config.Known(secret)
		}
		s.Executor.Topic = "x"
		made, err := newSource(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h, body, err := spoken(s, "777", "4930123456", "hello", time.Now())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/in/x", bytes.NewReader(body))
		r.Header = h
		got, err := made.Source.Read(r, body, time.Now())
		if err != nil || len(got.Events) != 1 || got.Events[0].ID != "777" || got.Events[0].Text != "hello" {
			t.Errorf("%s: %+v, %v; sent %s", name, got, err, body)
		}
	}
	s := config.Source{Type: "slack", Secret: config.Known(secret), Executor: config.Executor{Topic: "x"}}
	made, err := newSource(s)
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{"U1": "TDEV:U1", "T0123ABCD:U024BE7LH": "T0123ABCD:U024BE7LH"} {
		h, body, err := spoken(s, "777", from, "hello", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/in/x", bytes.NewReader(body))
		r.Header = h
		if got, err := made.Source.Read(r, body, time.Now()); err != nil || len(got.Events) != 1 || got.Events[0].Sender != want {
			t.Errorf("from %s in Slack: %+v, %v; want %s", from, got, err, want)
		}
	}
	if _, _, err := spoken(config.Source{Type: "telegram"}, "1", "ann", "x", time.Now()); err == nil {
		t.Error("a Telegram user whose id is a name")
	}
	if _, _, err := spoken(config.Source{Type: "whatsapp", Secret: config.Known(secret)}, "1", "ann", "x", time.Now()); err == nil {
		t.Error("a number that is a name")
	}
	if _, _, err := spoken(config.Source{Type: "webhook", Fields: config.Fields{Sender: "$.a[0]"}}, "1", "ann", "x", time.Now()); err == nil {
		t.Error("a field in a list")
	}
}

// The deed dev that answers where they all listen may be another project's: nothing is said to it.
func TestSay_ToAnotherProject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		found         bool
		data, project string
		refused       bool
	}{
		{true, "/a/.deed", "/b/.deed", true},
		{true, "/a/.deed", "/a/../a/.deed", false},
		{true, "/a/.deed", "", false}, // it has none of its own
		{true, "", "/b/.deed", false},
		{false, "/a/.deed", "/b/.deed", false}, // somebody has said where
	} {
		err := isOfProject(c.found, "127.0.0.1:8426", c.data, c.project)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "--catch-http") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
