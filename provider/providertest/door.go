package providertest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Door is a listener on a port of its own that can be shut, with all its
// connections, and opened again: a harness's Down and Up.
type Door struct {
	t    testing.TB
	addr net.Addr

	mu    sync.Mutex
	open  net.Listener // guarded by mu; nil while shut
	moved chan struct{}
	conns map[net.Conn]bool
	ended bool
}

// NewDoor opens one; it is closed at the end of the test.
func NewDoor(t testing.TB) *Door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &Door{t: t, addr: l.Addr(), open: l, moved: make(chan struct{}), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Accept waits for a connection, also while the door is shut.
func (d *Door) Accept() (net.Conn, error) {
	for {
		d.mu.Lock()
		l, moved, ended := d.open, d.moved, d.ended
		d.mu.Unlock()
		if ended {
			return nil, net.ErrClosed
		}
		if l == nil {
			<-moved
			continue
		}
		c, err := l.Accept()
		d.mu.Lock()
		if err == nil && d.open == l {
			d.conns[c] = true
			d.mu.Unlock()
			return c, nil
		}
		d.mu.Unlock()
		if err == nil {
			_ = c.Close()
		}
	}
}

// Close shuts it for good.
func (d *Door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil
	}
	d.ended = true
	d.shut()
	return nil
}

// Addr is the address, the same for ever.
func (d *Door) Addr() net.Addr { return d.addr }

// shut is called with mu held.
func (d *Door) shut() {
	if d.open != nil {
		_ = d.open.Close()
		d.open = nil
	}
	for c := range d.conns {
		_ = c.Close()
	}
	clear(d.conns)
	close(d.moved)
	d.moved = make(chan struct{})
}

// Down shuts the door.
func (d *Door) Down() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut()
}

// Up opens it again.
func (d *Door) Up() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := 0; ; n++ {
		l, err := net.Listen("tcp", d.addr.String())
		if err == nil {
			d.open = l
			close(d.moved)
			d.moved = make(chan struct{})
			return
		}
		if n == 100 {
			d.t.Errorf("the port cannot be opened again: %v", err)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}
