package providertest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Gate is a listener on a port of its own that can be shut, with all its
// connections, and opened again: a harness's Down and Up.
type Gate struct {
	t       testing.TB
	addr    net.Addr
	release func()       // gives up the port
	reused  atomic.Int64 // requests

	mu    sync.Mutex
	open  net.Listener // guarded by mu; nil while shut
	moved chan struct{}
	conns map[net.Conn]bool
	ended bool
}

// NewGate opens one; it is closed at the end of the test.
func NewGate(t testing.TB) *Gate {
	t.Helper()
	l, release, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{t: t, addr: l.Addr(), release: release, open: l, moved: make(chan struct{}), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// Serve serves an adapter's server behind a gate until the test ends.
func Serve(t testing.TB, h http.Handler) (url string, gate *Gate) {
	t.Helper()
	gate = NewGate(t)
	type requests struct{} // of a connection
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, ok := r.Context().Value(requests{}).(*atomic.Int64); ok && n.Add(1) > 1 {
			gate.reused.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, requests{}, &atomic.Int64{})
	}
	_ = server.Listener.Close()
	server.Listener = gate
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, gate
}

// Accept waits for a connection, also while the gate is shut.
func (g *Gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		l, moved, ended := g.open, g.moved, g.ended
		g.mu.Unlock()
		if ended {
			return nil, net.ErrClosed
		}
		if l == nil {
			<-moved
			continue
		}
		c, err := l.Accept()
		g.mu.Lock()
		if err == nil && g.open == l {
			g.conns[c] = true
			g.mu.Unlock()
			return c, nil
		}
		g.mu.Unlock()
		if err == nil {
			_ = c.Close()
		}
	}
}

// Close shuts it for good.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil
	}
	g.ended = true
	g.shut()
	g.release()
	return nil
}

// Addr is the address, the same for ever.
func (g *Gate) Addr() net.Addr { return g.addr }

// shut is called with mu held.
func (g *Gate) shut() {
	if g.open != nil {
		_ = g.open.Close()
		g.open = nil
	}
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
	close(g.moved)
	g.moved = make(chan struct{})
}

// Reused returns how many requests of a server behind it, by [Serve], came over a
// connection that had had one.
func (g *Gate) Reused() int { return int(g.reused.Load()) }

// Down shuts the gate.
func (g *Gate) Down() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut()
}

// Up opens it again.
func (g *Gate) Up() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := 0; ; n++ {
		l, err := net.Listen("tcp", g.addr.String())
		if err == nil {
			g.open = l
			close(g.moved)
			g.moved = make(chan struct{})
			return
		}
		if n == 100 {
			g.t.Errorf("the port cannot be opened again: %v", err)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}
