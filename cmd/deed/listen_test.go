package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/sink/webhook"
)

const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// posted is a message of the second attempt.
func posted() deed.Message {
	return deed.Message{ID: deed.NewID(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 7), Seq: 7, Topic: "orders", Key: "k7", Type: "order.paid", Attempt: 2, Payload: []byte(`{"order": 7}`)}
}

// post delivers a message to a receiver as deed does.
func post(t *testing.T, url, secret string, timeout time.Duration) error {
	t.Helper()
	sink, err := webhook.New(webhook.Options{URL: url, Secret: secret, AllowHosts: []string{"127.0.0.1"}, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	return errors.Join(sink.Deliver(t.Context(), []deed.Message{posted()})...)
}

func TestListen_ChecksAndPrints(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := &hooks{secrets: []string{hookSecret}, asJSON: true, out: &out}
	server := httptest.NewServer(h)
	defer server.Close()
	if err := post(t, server.URL, hookSecret, 0); err != nil {
		t.Fatal(err)
	}
	if err := post(t, server.URL, "another secret than that one", 0); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a wrong signature was answered with %v", err)
	}
	var lines []received
	for dec := json.NewDecoder(&out); dec.More(); {
		var r received
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r)
	}
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	first, second := lines[0], lines[1]
	if first.Status != 204 || !first.Verified || first.Topic != "orders" || first.Key != "k7" || first.Type != "order.paid" || first.Attempt != "2" ||
		first.Times != 1 || string(first.Payload) != `{"order":7}` || first.ID == "" {
		t.Errorf("got %+v %s", first, first.Payload)
	}
	if second.Status != 401 || second.Verified || second.Error == "" {
		t.Errorf("got %+v", second)
	}
}

// Whoever signs in the file is known: sinks, providers, and what executes messages that come in.
func TestListen_KnowsWhoSignsInTheFile(t *testing.T) {
	t.Parallel()
	secret := func(n string) string { return "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZW" + n + "=" }
	folder := t.TempDir()
	for _, n := range []string{"Y", "c", "g", "k"} {
		if err := os.WriteFile(filepath.Join(folder, n), []byte(secret(n)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(folder, "deed.yaml")
	if err := os.WriteFile(path, []byte(`
sinks: {hook: {type: webhook, url: "https://a.example.com", secret: "file:Y"}}
topics: {orders: {sink: hook}}
providers: {hooks: {type: webhook, secret: "file:c", previous_secret: "file:g"}}
public: {listen: ":8443"}
sources: {shop: {type: slack, secret: "env:DEED_NOT_SET", executor: {webhook: "https://b.example.com", secret: "file:k"}}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var h hooks
	if err := h.findSecrets(&app{configFile: path}, false); err != nil {
		t.Fatal(err)
	}
	if want := []string{secret("Y"), secret("c"), secret("g"), secret("k")}; !slices.Equal(h.secrets, want) {
		t.Errorf("%q, want %q", h.secrets, want)
	}
}

func TestListen_FailsAsItIsTold(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := &hooks{failFirst: 2, fail: 500, out: &out}
	server := httptest.NewServer(h)
	defer server.Close()
	for i, want := range []string{"500", "500", ""} {
		err := post(t, server.URL, hookSecret, 0)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("attempt %d: %v, want %q", i+1, err, want)
		}
	}
	if text := out.String(); !strings.Contains(text, "204  orders  type=order.paid  key=k7") || !strings.Contains(text, "came 3 times") || !strings.Contains(text, "unchecked") {
		t.Errorf("printed %s", text)
	}
}

func TestListen_SlowAnswers(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := &hooks{slow: 10 * time.Minute, out: &out}
	var asked atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(true)
		h.ServeHTTP(w, r)
	}))
	// On a busy machine a sender that does not wait may be gone before it is heard.
	for timeout := 200 * time.Millisecond; !asked.Load() && timeout < pgtest.Patience; timeout *= 2 {
		if err := post(t, server.URL, hookSecret, timeout); err == nil {
			t.Error("an answer came")
		}
	}
	server.Close() // waits for the handler
	if text := out.String(); !strings.Contains(text, "the sender did not wait") {
		t.Errorf("printed %s", text)
	}
}

func TestListen_Forwards(t *testing.T) {
	t.Parallel()
	status := 201
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := webhook.Verify([]string{hookSecret}, r.Header, body, 0, time.Now()); err != nil || r.URL.Path != "/hooks" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		w.WriteHeader(status)
	}))
	h := &hooks{out: io.Discard}
	if err := h.check(newListen(&app{}), far.URL+"/hooks"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	if err := post(t, server.URL, hookSecret, 0); err != nil {
		t.Error(err)
	}
	status = 409
	if err := post(t, server.URL, hookSecret, 0); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("a refusal came back as %v", err)
	}
	far.Close()
	if err := post(t, server.URL, hookSecret, 0); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("a receiver that is not there came back as %v", err)
	}
}

// stopsAtOnce stops a receiver when a webhook is printed, and keeps the one that
// prints long enough for that.
type stopsAtOnce struct {
	stop  func()
	lines chan string
}

func (s *stopsAtOnce) Write(line []byte) (int, error) {
	s.lines <- string(line)
	if bytes.Contains(line, []byte("orders")) {
		s.stop()
		time.Sleep(100 * time.Millisecond)
	}
	return len(line), nil
}

// Who is printed as answered has the answer, or would come again to the next receiver.
func TestListen_AnswersWhatItPrintedThoughItIsStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &stopsAtOnce{stop: stop, lines: make(chan string, 10)}
	h := &hooks{secrets: []string{hookSecret}, out: out}
	ended := make(chan error, 1)
	go func() { ended <- h.serve(ctx, "127.0.0.1:0") }()
	if err := post(t, regexp.MustCompile(`http://[0-9.:]+/`).FindString(<-out.lines), hookSecret, 0); err != nil {
		t.Errorf("after %q the sender heard %v", <-out.lines, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The command says where it listens, and ends when it is told to.
func TestListen_Command(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"listen", "127.0.0.1:0", "--secret", hookSecret}, nil, write, &errs)
		_ = write.Close()
	}()
	lines := bufio.NewScanner(read)
	if !lines.Scan() {
		t.Fatalf("it said nothing but %s", &errs)
	}
	url := regexp.MustCompile(`http://[0-9.:]+/`).FindString(lines.Text())
	said := make(chan string, 1)
	go func() {
		lines.Scan()
		said <- lines.Text()
	}()
	if err := post(t, url, hookSecret, 0); err != nil {
		t.Error(err)
	}
	if line := <-said; !strings.Contains(line, `{"order":7}`) || strings.Contains(line, "unchecked") {
		t.Errorf("printed %q", line)
	}
	stop()
	if status := <-ended; status != exitOK {
		t.Errorf("it ended with %d: %s", status, &errs)
	}
}
