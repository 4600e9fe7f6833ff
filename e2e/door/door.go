// Package door stands between a client and its server: a test shuts it to cut
// the connections, or makes it silent, and opens it again.
package door

import (
	"net"
	"sync"
	"testing"
)

// A Door is a listener that a test controls. Its address stays taken while it
// is shut, so that no other test gets it.
type Door struct {
	net.Listener

	mu    sync.Mutex // guards the fields below
	shut  bool
	still chan struct{} // closed when bytes may pass again; nil: they may
	conns map[net.Conn]struct{}
}

// Of makes a door of a listener.
func Of(l net.Listener) *Door { return &Door{Listener: l, conns: map[net.Conn]struct{}{}} }

// Accept returns the next connection that comes while the door is open.
func (d *Door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.enter(c) {
			return &visitor{c, d}, nil
		}
		c.Close()
	}
}

func (d *Door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.conns[c] = struct{}{}
	}
	return !d.shut
}

// Shut cuts all connections and refuses new ones.
func (d *Door) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for c := range d.conns {
		c.Close()
	}
}

// Open undoes Shut.
func (d *Door) Open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}

// Hush lets nothing through any more, without a word to either side. Speak
// undoes it.
func (d *Door) Hush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.still == nil {
		d.still = make(chan struct{})
	}
}

// Speak undoes Hush.
func (d *Door) Speak() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.still != nil {
		close(d.still)
		d.still = nil
	}
}

func (d *Door) wait() {
	d.mu.Lock()
	still := d.still
	d.mu.Unlock()
	if still != nil {
		<-still
	}
}

// visitor is a connection that came through a door.
type visitor struct {
	net.Conn
	door *Door
}

func (v *visitor) Read(b []byte) (int, error) {
	n, err := v.Conn.Read(b)
	v.door.wait()
	return n, err
}

func (v *visitor) Write(b []byte) (int, error) {
	v.door.wait()
	return v.Conn.Write(b)
}

func (v *visitor) Close() error {
	v.door.mu.Lock()
	delete(v.door.conns, v.Conn)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

// Before makes a door that leads to the server at target. It is removed when
// the test ends.
func Before(t testing.TB, target string) *Door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := Of(l)
	var all sync.WaitGroup
	all.Go(func() { // ends with the listener
		for {
			client, err := d.Accept()
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
		d.Speak()
		d.Shut()
		all.Wait()
	})
	return d
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
