package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// service is one whose requests are lines "SAID ID DELIVERY", and whose signature is
// "ours".
type service struct{ now atomic.Pointer[time.Time] }

func (l *service) ReadEvents(r *http.Request, body []byte, now time.Time) (told delivery.Told, err error) {
	l.now.Store(&now)
	switch r.Header.Get("Signature") {
	case "away":
		return told, delivery.ErrAgain
	case "off":
		return told, delivery.ErrNoEvents
	case "ours":
	default:
		return told, delivery.ErrUnverified
	}
	for line := range strings.Lines(string(body)) {
		words := strings.Fields(line)
		switch {
		case words[0] == "nonsense":
			return told, errors.New("nonsense")
		case words[0] == "other":
			told.Other++
		case len(words) < 3:
			told.Unreadable++
		default:
			told.Events = append(told.Events, delivery.StatusEvent{Said: delivery.Said(words[0]), ID: words[1], Delivery: words[2]})
		}
	}
	return told, nil
}

// What a service says is recorded once its request is verified, and what cannot be read of
// it holds up nothing.
func TestEventsHandler(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	id := sent(t, db, email("a@example.com"))[0]
	reader := &service{}
	h := l.EventsHandler(map[string]delivery.EventReader{"fake": reader})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	ask := func(method, path, signature, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Signature", signature)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	for _, c := range []struct {
		method, path, signature, body string
		want                          int
	}{
		{"POST", "/events/fake", "theirs", "bounced 1 " + id, 401},
		{"POST", "/events/fake", "off", "bounced 1 " + id, 404},
		{"POST", "/events/fake", "away", "bounced 1 " + id, 503},
		{"POST", "/events/other", "ours", "bounced 1 " + id, 404},
		{"POST", "/events/", "ours", "bounced 1 " + id, 404},
		{"POST", "/events/fake/x", "ours", "bounced 1 " + id, 404},
		{"PUT", "/events/fake", "ours", "bounced 1 " + id, 405},
		{"POST", "/events/fake", "ours", "nonsense", 400},
		{"POST", "/events/fake", "ours", strings.Repeat("x", 1<<20+1), 413},
	} {
		if code := ask(c.method, c.path, c.signature, c.body); code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, code, c.want)
		}
	}
	if got := feedback(t, l, id); got != (delivery.Feedback{}) || len(suppressed(t, db)) > 0 {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if code := ask("POST", "/events/fake", "ours", "delivered 1 "+id+"\nunreadable\nother\nvanished 2 "+id+"\nbounced 3 0190a2f0-0000-7000-8000-000000000000\n"); code != 200 {
			t.Errorf("status %d", code)
		}
	}
	if got := feedback(t, l, id); got.DeliveredAt == nil || got.BouncedAt != nil {
		t.Errorf("%+v", got)
	}
	var counted []string
	for _, c := range h.Counts() {
		counted = append(counted, fmt.Sprintf("%s %s %d", c.Provider, c.Outcome, c.N))
	}
	if got := strings.Join(counted, ", "); got != "fake failed 1, fake ignored 2, fake invalid 2, fake matched 2, fake strange 2, fake unreadable 4, fake unverified 1" {
		t.Errorf("counted: %s", got)
	}
	if since := time.Since(*reader.now.Load()).Abs(); since > time.Minute {
		t.Errorf("the time is %s off", since)
	}
}

// timedWriter keeps until when its request may be read.
type timedWriter struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timedWriter) SetReadDeadline(until time.Time) error {
	w.until = until
	return nil
}

// watchedBody and watchedService look when the body is read, and when what it says is taken.
type watchedBody struct {
	io.Reader
	look func()
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.look()
	return b.Reader.Read(p)
}

type watchedService struct {
	service
	look func()
}

func (s *watchedService) ReadEvents(r *http.Request, body []byte, now time.Time) (delivery.Told, error) {
	s.look()
	return s.service.ReadEvents(r, body, now)
}

// The time that a body may take is over with the body: a connection's deadline that is left ends the request's
// context when it comes, and with it a recording that the database would have answered.
func TestEventsHandler_TheBodysTimeEndsWithTheBody(t *testing.T) {
	t.Parallel()
	l := ledger(t, pgtest.New(t), said(newFake()))
	w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
	reading, taking := time.Time{}, time.Unix(1, 0)
	r := httptest.NewRequest(http.MethodPost, "/events/fake", watchedBody{strings.NewReader("bounced 1 0190a2f0-0000-7000-8000-000000000000\n"), func() { reading = w.until }})
	r.Header.Set("Signature", "ours")
	reader := &watchedService{look: func() { taking = w.until }}
	l.EventsHandler(map[string]delivery.EventReader{"fake": reader}).ServeHTTP(w, r)
	if w.Code != 200 || reading.IsZero() || !taking.IsZero() {
		t.Errorf("%d; while the body is read the deadline is %s, while it is taken %s", w.Code, reading, taking)
	}
}

// headed is a service that is known by its headers.
type headed struct{ service }

func (*headed) VerifyHeaders(h http.Header) error {
	if h.Get("Signature") != "ours" {
		return delivery.ErrUnverified
	}
	return nil
}

// slowBody is a body that begins to be read, and has no end before the test's.
type slowBody struct{ began, end chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	b.began <- struct{}{}
	<-b.end
	return 0, io.ErrUnexpectedEOF
}

// Who is refused by the headers keeps no place, however slowly the body comes; and while more than half of the places are
// taken, a body may take a fifth of its time.
func TestEventsHandler_SlowBodiesTakeNoPlaces(t *testing.T) {
	t.Parallel()
	l := ledger(t, pgtest.New(t), said(newFake()))
	h := l.EventsHandler(map[string]delivery.EventReader{"fake": &headed{}})
	began, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() { close(end); all.Wait() })
	ask := func(signature string, body io.Reader) *timedWriter {
		r := httptest.NewRequest(http.MethodPost, "/events/fake", body)
		r.Header.Set("Signature", signature)
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, r)
		return w
	}
	answered := make(chan int, 64)
	for range 64 {
		all.Go(func() { answered <- ask("theirs", slowBody{began, end}).Code })
	}
	for range 64 {
		select {
		case code := <-answered:
			if code != http.StatusUnauthorized {
				t.Errorf("refused by its headers: %d", code)
			}
		case <-began:
			t.Error("the body of a request that its headers refuse is waited for")
		}
	}
	const event = "bounced 1 0190a2f0-0000-7000-8000-000000000000\n"
	if code := ask("ours", strings.NewReader(event)).Code; code != http.StatusOK {
		t.Fatalf("beside those that were refused: %d", code)
	}
	untilOf := func() (within time.Duration) { // while its body is read
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodPost, "/events/fake", watchedBody{strings.NewReader(event), func() { within = time.Until(w.until) }})
		r.Header.Set("Signature", "ours")
		h.ServeHTTP(w, r)
		return within
	}
	for range 31 {
		all.Go(func() { ask("ours", slowBody{began, end}) })
		<-began
	}
	if within := untilOf(); within < 2*time.Second {
		t.Errorf("with half of the places taken a body may take %s", within)
	}
	all.Go(func() { ask("ours", slowBody{began, end}) })
	<-began
	if within := untilOf(); within > time.Second {
		t.Errorf("with more than half of the places taken a body may take %s", within)
	}
}

// While the database is away the service is told to come again, and nothing is lost.
func TestEventsHandler_TheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.NewPool(pgtest.Worker, 2)
	l, err := delivery.New(context.Background(), pool, said(newFake()))
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/events/fake", strings.NewReader("delivered 1 x"))
	r.Header.Set("Signature", "ours")
	l.EventsHandler(map[string]delivery.EventReader{"fake": &service{}}).ServeHTTP(w, r)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %q", w.Code, w.Header())
	}
}
