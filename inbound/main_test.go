package inbound_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// plain is a platform whose requests are lines "ID SENDER TEXT", and whose signature is
// the word ours.
type plain struct{}

func (plain) Read(r *http.Request, body []byte, _ time.Time) (got inbound.Received, err error) {
	if r.Header.Get("Signature") != "ours" {
		return got, inbound.ErrUnverified
	}
	for line := range strings.Lines(string(body)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if words[0] == "unreadable" {
			got.Unreadable++
			continue
		}
		if len(words) < 3 {
			return got, inbound.ErrInvalid
		}
		raw, err := json.Marshal(map[string]string{"id": words[0], "from": words[1], "text": words[2]})
		if err != nil {
			return got, err
		}
		got.Events = append(got.Events, inbound.Event{ID: words[0], Sender: words[1], Kind: "telegram", ReplyTo: "https://example.com/" + words[1], Text: words[2], Body: raw})
	}
	return got, nil
}

// echo answers with what was written.
func echo(_ context.Context, m inbound.Message) (inbound.Result, error) {
	return inbound.Say(m.Text), nil
}

func source(do inbound.Executor) inbound.SourceOptions {
	return inbound.SourceOptions{Source: plain{}, Executor: do, Reply: inbound.ReplyBy{Provider: "hook", Channel: delivery.Webhook}, Timeout: pgtest.Patience}
}

// patient has requests and statements be waited for as long as they may be, where the test does not say how long: a
// machine that is busy with other things would have them answered for another reason than the one to be seen.
func patient(opts inbound.Options) inbound.Options {
	opts.Wait, opts.Deadline = cmp.Or(opts.Wait, time.Minute), cmp.Or(opts.Deadline, 25*time.Second)
	return opts
}

// receive runs a receiver and returns the URL of its source and what stops it.
func receive(t testing.TB, db *pgtest.DB, pool *pgxpool.Pool, opts inbound.Options) (url string, stop func()) {
	t.Helper()
	r, err := inbound.New(t.Context(), pool, patient(opts))
	if err != nil {
		t.Fatal(err)
	}
	url, stop = serveIn(t, r)
	return url + "/in/plain", stop
}

// serveIn runs r and returns its URL and what stops it.
func serveIn(t testing.TB, r *inbound.Receiver) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	server := httptest.NewServer(r.Handler())
	var once sync.Once
	stop = func() {
		once.Do(func() {
			server.Close()
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	eventually(t, "the receiver to run", func() bool {
		code, _ := get(t, server.URL+"/in/plain")
		return code != http.StatusServiceUnavailable
	})
	return server.URL, stop
}

func one(t testing.TB, db *pgtest.DB, do inbound.Executor) (url string, stop func()) {
	t.Helper()
	db.Providers(t, "fake", "hook")
	return receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": source(do)}})
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, is) {
		t.Fatalf("timed out waiting for %s", what)
	}
}

func get(t testing.TB, url string) (int, string) { return request(t, http.MethodGet, url, "", "") }

func request(t testing.TB, method, url, signature, body string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Signature", signature)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	got, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(got)
}

func post(t testing.TB, url, body string) int {
	t.Helper()
	code, _ := request(t, http.MethodPost, url, "ours", body)
	return code
}

// bring sends a request as a platform does that is answered 503 where another one's transaction takes half a second: until it is taken.
func bring(t testing.TB, url, body string) {
	t.Helper()
	code := 0
	if !pgtest.Wait(pgtest.Patience, func() bool {
		code = post(t, url, body)
		return code != http.StatusServiceUnavailable
	}) || code != http.StatusOK {
		t.Errorf("%q is answered %d", body, code)
	}
}

// state is what became of each message, in the order in which they came, as
// "ID STATUS xATTEMPTS REPLIES".
func state(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(concat_ws(' ', m.platform_message_id, m.status, 'x' || m.attempts, 'r' || (
			select count(*) from deed.channel_outbox c where c.channel_message_id = m.id
		)), ', ' order by m.turn), '') from deed.channel_messages m`)
}

func verified(t testing.TB, db *pgtest.DB) {
	t.Helper()
	got := pgtest.One[string](t, db.Pool(pgtest.Worker), `select coalesce(string_agg(invariant || ': ' || detail, '; '), '') from deed.verify()`)
	if got != "" {
		t.Errorf("deed.verify: %s", got)
	}
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func act(reason string) audit.Act { return audit.Act{By: "ann", Reason: reason} }

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
