// Package gate stands between a client and its server: a test shuts it to cut
// the connections, or makes it silent, and opens it again.
package gate

import (
	"net"
	"sync"
	"testing"
)

// A Gate is a listener that a test controls. Its address stays taken while it
// is shut, so that no other test gets it.
type Gate struct {
	net.Listener

	mu    sync.Mutex // guards the fields below
	shut  bool
	still chan struct{} // closed when bytes may pass again; nil: they may
	conns map[net.Conn]struct{}
}

// Of makes a gate of a listener.
func Of(l net.Listener) *Gate { return &Gate{Listener: l, conns: map[net.Conn]struct{}{}} }

// Accept returns the next connection that comes while the gate is open.
func (g *Gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.enter(c) {
			return &visitor{c, g}, nil
		}
		c.Close()
	}
}

func (g *Gate) enter(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.conns[c] = struct{}{}
	}
	return !g.shut
}

// Shut cuts all connections and refuses new ones.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for c := range g.conns {
		c.Close()
	}
}

// Open undoes Shut.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// Hush lets nothing through any more, without a word to either side. Speak
// undoes it.
func (g *Gate) Hush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.still == nil {
		g.still = make(chan struct{})
	}
}

// Speak undoes Hush.
func (g *Gate) Speak() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.still != nil {
		close(g.still)
		g.still = nil
	}
}

func (g *Gate) wait() {
	g.mu.Lock()
	still := g.still
	g.mu.Unlock()
	if still != nil {
		<-still
	}
}

// visitor is a connection that came through a gate.
type visitor struct {
	net.Conn
	gate *Gate
}

func (v *visitor) Read(b []byte) (int, error) {
	n, err := v.Conn.Read(b)
	v.gate.wait()
	return n, err
}

func (v *visitor) Write(b []byte) (int, error) {
	v.gate.wait()
	return v.Conn.Write(b)
}

func (v *visitor) Close() error {
	v.gate.mu.Lock()
	delete(v.gate.conns, v.Conn)
	v.gate.mu.Unlock()
	return v.Conn.Close()
}

// Before makes a gate that leads to the server at target. It is removed when
// the test ends.
func Before(t testing.TB, target string) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := Of(l)
	var all sync.WaitGroup
	all.Go(func() { // ends with the listener
		for {
			client, err := g.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			all.Go(func() { pass(client, server) })
			all.Go(func() { pass(server, client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.Speak()
		g.Shut()
		all.Wait()
	})
	return g
}

// pass copies until either side ends, and ends both.
func pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
