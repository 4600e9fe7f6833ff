package inbound_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with are the lines that have a word.
func (l *lines) with(word string) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, word) {
			list = append(list, line)
		}
	}
	return list
}

// logged runs a receiver whose log is kept, and returns its URL.
func logged(t testing.TB, db *pgtest.DB, do inbound.Executor) (r *inbound.Receiver, url string, log *lines) {
	t.Helper()
	db.Providers(t, "fake", "hook")
	log = &lines{}
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{
		Sources: map[string]inbound.SourceOptions{"plain": source(do)}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}))
	if err != nil {
		t.Fatal(err)
	}
	base, _ := serveIn(t, r)
	return r, base + "/in/plain", log
}

// What is not the platform's is counted, each of it, and logged once a second at the most; so
// that who sends much of it fills no disk. Nothing of it is kept.
func TestHandler_WhatIsForgedIsCountedAndHardlyLogged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r, url, log := logged(t, db, echo)
	before := r.Counts()
	started := time.Now()
	const n = 200
	for range n {
		if code, _ := request(t, "POST", url, "theirs", "1 canary canary-text"); code != 401 {
			t.Fatalf("answered %d", code)
		}
	}
	most := int(time.Since(started)/time.Second) + 1
	count := func(list []inbound.Count) (forged int64) {
		for _, c := range list {
			if c.Outcome == "unverified" {
				forged += c.N
			}
		}
		return forged
	}
	want(t, "counted", count(r.Counts())-count(before), n)
	if got := len(log.with("signature")); got < 1 || got > most+1 { // one may be of before
		t.Errorf("%d lines in %d seconds", got, most)
	}
	if list := log.with("canary"); len(list) > 0 {
		t.Errorf("logged: %s", list[0])
	}
	want(t, "stored", state(t, db), "")
}

// Whoever looks after a message finds all that was logged of it by either of its ids (D9), and
// of a reply that could not be reserved there is one line; what was written, and by whom,
// stands in none.
func TestContract_D9_InboundLogLines(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, url, log := logged(t, db, func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		switch {
		case m.Text == "canary-fails" && m.Attempt == 1:
			return inbound.Result{}, errors.New("canary@example.com does not answer")
		case m.Text == "canary-unreserved" && m.Attempt == 1:
			return inbound.Result{Replies: []inbound.Reply{{Text: "x", Provider: "none"}}}, nil
		case m.Text == "canary-denied":
			return inbound.Deny("rude"), nil
		}
		return inbound.Say(m.Text), nil
	})
	for id, code := range map[string]int{"1 canary-a canary-fails": 500, "2 canary-b canary-unreserved": 500, "3 canary-c canary-denied": 200, "4 canary-d canary-text": 200} {
		want(t, id, post(t, url, id), code)
	}
	for _, body := range []string{"1 canary-a canary-fails", "2 canary-b canary-unreserved", "4 canary-d canary-text"} {
		want(t, "again: "+body, post(t, url, body), 200)
	}
	for platform, of := range map[string]struct{ lines, errors int }{"1": {4, 1}, "2": {4, 1}, "3": {2, 0}, "4": {3, 0}} {
		id := pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.channel_messages where platform_message_id = $1`, platform)
		eventually(t, "the lines of "+platform, func() bool { return len(log.with("channel_message_id="+id)) >= of.lines }) // of an end after its answer
		list, failed := log.with("channel_message_id="+id), 0
		for _, line := range list {
			if !strings.Contains(line, "correlation_id="+id) {
				t.Errorf("a line without the correlation id: %s", line)
			}
			if strings.Contains(line, "level=ERROR") {
				failed++
			}
		}
		want(t, "lines and errors of "+platform, fmt.Sprint(len(list), failed), fmt.Sprint(of.lines, of.errors))
	}
	if list := log.with("canary"); len(list) > 0 {
		t.Errorf("logged: %s", list[0])
	}
	verified(t, db)
}

// Where nobody repeats a message that fails it is run again here, ten times in all; then it is
// held as well, and the sender's next has its turn.
func TestContract_D8_HeldWhereNobodyRepeats(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	s := source(func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		if m.PlatformID == "1" {
			return inbound.Result{}, errors.New("broken")
		}
		return echo(ctx, m)
	})
	s.At = inbound.AfterAccepted
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{PollInterval: 20 * time.Millisecond, Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "taken", post(t, url, "1 ann hello\n2 ann hello"), 200)
	eventually(t, "ten attempts", func() bool {
		db.Exec(t, pgtest.Owner, `update deed.channel_messages set process_after = now() where process_after > now()`)
		return state(t, db) == "1 dispatch_failed x10 r0, 2 executed x1 r1"
	})
	list, err := inbound.List(t.Context(), db.Pool(pgtest.App), inbound.Filter{Held: true})
	if err != nil || len(list.Items) != 1 || list.Items[0].Error != "broken" {
		t.Errorf("held: %+v, %v", list, err)
	}
	want(t, "a repeat", post(t, url, "1 ann hello"), 200)
	verified(t, db)
}

// Who sends a body slowly is cut off, and who waits for a slow executor is not.
func TestHandler_SlowBodiesAndSlowExecutors(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	s := source(func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		time.Sleep(4500 * time.Millisecond) // longer than a body may take, which must not end it
		return echo(ctx, m)
	})
	const wait = 8 * time.Second
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{Wait: wait, Sources: map[string]inbound.SourceOptions{"plain": s}})
	for n := 1; ; n++ {
		started := time.Now()
		code := post(t, url, fmt.Sprintf("%d ann hello", n))
		if took := time.Since(started); code == 503 && took >= wait && n < 10 {
			continue // all of it was too slow, and not the executor alone
		}
		want(t, "a slow executor", code, 200)
		break
	}
	conn, err := net.Dial("tcp", strings.Split(url, "/")[2])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /in/plain HTTP/1.1\r\nHost: x\r\nSignature: ours\r\nContent-Length: 100\r\n\r\nx ann")
	_ = conn.SetReadDeadline(time.Now().Add(pgtest.Patience))
	started := time.Now()
	answer, err := io.ReadAll(conn)
	if took := time.Since(started); err != nil || took > time.Minute || !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
		t.Errorf("a body that never comes: after %s %q, %v", took, answer, err)
	}
}

// rude is a source that is not ours, and says what was written.
type rude struct{}

func (rude) Read(_ *http.Request, body []byte, _ time.Time) (inbound.Received, error) {
	return inbound.Received{}, fmt.Errorf("%w: %s", inbound.ErrInvalid, body)
}

// Who sends what cannot be read is told which field it is; neither they nor the log are told what
// was written.
func TestHandler_WhatCannotBeRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	const secret = "a secret of sixteen bytes"
	hook, err := inbound.Webhook(inbound.WebhookOptions{Secrets: []string{secret}, Scheme: "hmac", Header: "Signature", Sender: "$.from", Text: "$.text", ID: "$.id"})
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	url, stop := receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{
		Sources: map[string]inbound.SourceOptions{"plain": source(echo), "hook": withSource(hook), "rude": withSource(rude{})},
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	at := strings.TrimSuffix(url, "plain")
	for body, text := range map[string]string{
		`{"id": "1", "text": "canary"}`:                                                  "the message's sender is missing",
		`{"from": "canary", "text": "canary"}`:                                           "the message's id is missing",
		`{"id": "1", "from": {"a": "canary"}}`:                                           "the message's sender is neither a string nor a whole number",
		`{"id": "1", "from": "` + strings.Repeat("canary", 100) + `"}`:                   "sender is missing, or has over 255 bytes",
		`{"id": "1", "from": "ann", "x": [` + strings.Repeat("1e131071,", 10000) + `1]}`: "numbers of too many digits",
		`{"id": "1", "from": "ann", "x": ` + strings.Repeat(`{"canary": `, 5000) + `1}`:  "the body is not one JSON value",
		`{"canary": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`:      "100 arrays and objects in each other",
		`{"id": "1", "from": "ann", "text": "canary", "text": "canary"}`:                 "same name twice",
		`{"id": "1", "from": "ann", "text": "canary\u0000"}`:                             "an escaped NUL",
	} {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		code, said := request(t, http.MethodPost, at+"hook", hex.EncodeToString(mac.Sum(nil)), body)
		if code != 400 || !strings.Contains(said, text) || strings.Contains(said, "canary") {
			t.Errorf("%.60s: %d %s, want %q", body, code, said, text)
		}
	}
	code, said := request(t, http.MethodPost, at+"rude", "", "canary")
	want(t, "another's source", fmt.Sprint(code, said), "400"+"{\"status\":\"it is no request of the platform's\"}\n")
	want(t, "stored", state(t, db), "")
	stop()
	if told := log.with("canary"); told != nil {
		t.Errorf("the log says what was written: %s", told)
	}
	if told := log.with("a request was refused: it is no request of the platform's"); len(told) == 0 {
		t.Error("the log does not say that requests were refused")
	}
}

func withSource(s inbound.Source) inbound.SourceOptions {
	o := source(echo)
	o.Source = s
	return o
}
