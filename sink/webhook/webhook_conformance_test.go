package webhook_test

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/sink/sinktest"
	"github.com/deedhq/deed/sink/webhook"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestMain(m *testing.M) { sinktest.Main(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, newHarness)
}

// endpoint is a receiver that verifies what it is sent.
type endpoint struct {
	t   *testing.T
	srv *httptest.Server

	mu      sync.Mutex // guards the fields below
	arrived []sinktest.Arrival
	slow    time.Duration
	judge   func([]byte) sinktest.Verdict
}

// gate is a listener that can drop every connection as soon as it comes, which
// ends the TLS handshake. The port stays taken, so no other test gets it.
type gate struct {
	net.Listener
	shut atomic.Bool
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil || !g.shut.Load() {
			return c, err
		}
		c.Close()
	}
}

func newHarness(t *testing.T) sinktest.Harness {
	e := &endpoint{t: t}
	e.srv = httptest.NewUnstartedServer(e)
	g := &gate{Listener: e.srv.Listener}
	e.srv.Listener = g
	e.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.srv.StartTLS()
	t.Cleanup(e.srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(e.srv.Certificate())
	sink, err := webhook.New(webhook.Options{
		URL: e.srv.URL, Secret: secret, AllowHosts: []string{"127.0.0.1"}, RootCAs: roots,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	h := e.harness(g)
	h.Sink = sink
	return h
}

// harness is all of one but the sink.
func (e *endpoint) harness(g *gate) sinktest.Harness {
	return sinktest.Harness{
		Features: sinktest.Features{Headers: true, Down: true, Slow: true, Refuse: true, InTurn: true},
		Arrived: func() []sinktest.Arrival {
			e.mu.Lock()
			defer e.mu.Unlock()
			return append([]sinktest.Arrival(nil), e.arrived...)
		},
		Down: func() {
			g.shut.Store(true)
			e.srv.CloseClientConnections()
		},
		Up:     func() { g.shut.Store(false) },
		Slow:   func(pause time.Duration) { e.set(func() { e.slow = pause }) },
		Refuse: func(judge func([]byte) sinktest.Verdict) { e.set(func() { e.judge = judge }) },
	}
}

func (e *endpoint) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := webhook.Verify([]string{secret}, r.Header, body, 0, time.Now()); err != nil {
		e.t.Error(err)
	}
	e.mu.Lock()
	slow, judge := e.slow, e.judge
	e.mu.Unlock()
	if slow > 0 && !pause(r.Context(), slow) {
		return
	}
	if judge != nil {
		switch judge(body) {
		case sinktest.ForNow:
			http.Error(w, "not now: "+string(body), http.StatusConflict)
			return
		case sinktest.ForGood:
			http.Error(w, "never: "+string(body), http.StatusUnprocessableEntity)
			return
		}
	}
	a := sinktest.Arrival{ID: r.Header.Get("webhook-id"), Payload: body, Headers: map[string]string{}}
	for name, field := range map[string]*string{"deed-topic": &a.Topic, "deed-key": &a.Key, "deed-type": &a.Type} {
		if *field, err = url.PathUnescape(r.Header.Get(name)); err != nil {
			e.t.Error(err)
		}
	}
	for name, values := range r.Header {
		a.Headers[strings.ToLower(name)] = values[0]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arrived = append(e.arrived, a)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
