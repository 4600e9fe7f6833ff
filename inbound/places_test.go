package inbound_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// slowBody is a body that begins to be read, and has no end before the test's.
type slowBody struct{ began, end chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	b.began <- struct{}{}
	<-b.end
	return 0, io.ErrUnexpectedEOF
}

// watchedBody says when it is read.
type watchedBody struct {
	io.Reader
	look func()
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.look()
	return b.Reader.Read(p)
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

// Who is refused by the headers keeps no place, however slowly the body comes; and while more than half of the places are
// taken, a body may take a fifth of its time.
func TestHandler_SlowBodiesTakeNoPlaces(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	const secret = "the-secret-of-telegram"
	chat := source(echo)
	var err error
	if chat.Source, err = inbound.Telegram(inbound.TelegramOptions{Secrets: []string{secret}}); err != nil {
		t.Fatal(err)
	}
	const wait = 20 * time.Second
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{Sources: map[string]inbound.SourceOptions{"chat": chat}, Wait: wait}))
	if err != nil {
		t.Fatal(err)
	}
	serveIn(t, r)
	eventually(t, "requests to be taken", func() bool { return r.Ready() == nil })
	began, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() { close(end); all.Wait() })
	const update = `{"update_id": 1, "poll": {}}`
	ask := func(given string, body io.Reader, w *timedWriter) int {
		req := httptest.NewRequest(http.MethodPost, "/in/chat", body)
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", given)
		r.Handler().ServeHTTP(w, req)
		return w.Code
	}
	writer := func() *timedWriter { return &timedWriter{ResponseRecorder: httptest.NewRecorder()} }
	answered := make(chan int, 256)
	for range 256 {
		all.Go(func() { answered <- ask("another-secret-of-theirs", slowBody{began, end}, writer()) })
	}
	waited := 0
	for range 256 {
		select {
		case code := <-answered:
			if code != http.StatusUnauthorized {
				t.Errorf("refused by its headers: %d", code)
			}
		case <-began:
			waited++
		}
	}
	if waited > 0 {
		t.Errorf("%d bodies of requests that their headers refuse are waited for", waited)
	}
	if code := ask(secret, strings.NewReader(update), writer()); code != http.StatusOK {
		t.Fatalf("beside those that were refused: %d", code)
	}
	untilOf := func() (within time.Duration) { // while its body is read
		w := writer()
		ask(secret, watchedBody{strings.NewReader(update), func() { within = time.Until(w.until) }}, w)
		return within
	}
	for range 127 {
		all.Go(func() { ask(secret, slowBody{began, end}, writer()) })
		<-began
	}
	if within := untilOf(); within < wait/4 {
		t.Errorf("with half of the places taken a body may take %s", within)
	}
	all.Go(func() { ask(secret, slowBody{began, end}, writer()) })
	<-began
	if within := untilOf(); within > wait/10 {
		t.Errorf("with more than half of the places taken a body may take %s", within)
	}

	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /in/chat HTTP/1.1\r\nHost: x\r\nX-Telegram-Bot-Api-Secret-Token: %s\r\nContent-Length: 100\r\n\r\n{", secret)
	_ = conn.SetReadDeadline(time.Now().Add(pgtest.Patience))
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503") { // it is to be brought again
		t.Errorf("a body that takes too long then: %q, %v", answer, err)
	}
}
