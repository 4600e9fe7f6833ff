package nats

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

func TestNew_AllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Options{
		URL: "http://u:hunter2@h,nats://,nats://h:hunter2", Subject: "a.*", User: "u", Token: "hunter2",
		Timeout: -1, MaxPending: -1, BatchSize: -1,
	})
	if deed.CodeOf(err) != deed.Invalid {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"does not begin with nats://", "names no host", "not a valid URL", `Subject "a.*"`, "more than one of",
		"Timeout", "MaxPending", "BatchSize",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is repeated: %v", err)
	}
}

func TestNew_Subjects(t *testing.T) {
	t.Parallel()
	for subject, ok := range map[string]bool{
		"": true, "events": true, "events.{topic}": true, "{topic}.{type}.{key}": true, "e-{type}": true,
		".a": false, "a.": false, "a..b": false, "a b": false, "a.>": false, "*": false, "{tenant}": false, "{topic": false,
		"$JS.API.x": false, "$SYS.x": false, strings.Repeat("x", 2000): false,
	} {
		_, err := New(Options{URL: "nats://h", Subject: subject})
		if (err == nil) != ok {
			t.Errorf("subject %q: %v", subject, err)
		}
	}
}

// New connects to nothing, and so works while the server is away.
func TestNew_ConnectsToNothing(t *testing.T) {
	t.Parallel()
	s, err := New(Options{URL: "nats://127.0.0.1:1", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if outcomes := s.Deliver(t.Context(), []deed.Message{{Topic: "t"}}); !deed.IsUnavailable(outcomes[0]) {
		t.Errorf("got %v", outcomes)
	}
}

// No text of a publisher's reaches a subject of another shape.
func FuzzSubject(f *testing.F) {
	f.Add("orders.eu", "o 1", "a.b")
	f.Add("..", "*", ">")
	s, err := New(Options{URL: "nats://h", Subject: "x.{topic}.{key}.{type}"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, topic, key, kind string) {
		if strings.Trim(topic, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-") != "" || topic == "" {
			return // no topic
		}
		subject, err := s.subject(deed.Message{Topic: topic, Key: key, Type: kind})
		if err != nil {
			return
		}
		parts := strings.Split(subject, ".")
		for _, p := range parts {
			if p == "" || strings.ContainsAny(p, "*> \t\r\n\x00") {
				t.Fatalf("subject %q", subject)
			}
		}
		last := parts[len(parts)-1]
		if back, err := url.PathUnescape(last); err != nil || back != kind && (kind != "" || last != "_") {
			t.Fatalf("type %q is the token %q", kind, last)
		}
	})
}
