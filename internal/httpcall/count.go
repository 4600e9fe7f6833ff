package httpcall

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
)

// Dial makes a connection, as in [net/http.Transport.DialContext].
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Count has the connections of dial count what is written to them, which tells
// a request that certainly never left from one that may have.
func Count(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &counted{Conn: c}, nil
	}
}

type counted struct {
	net.Conn
	tried atomic.Int64 // bytes that were handed over to be written, whatever came of it
}

// Write counts before it writes: a write that fails may have sent all of it.
func (c *counted) Write(b []byte) (int, error) {
	c.tried.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// connection is what a request was given.
type connection struct {
	reused  bool
	written func() bool // whether anything may have been written since
}

// writtenTo returns what says whether anything may have been written to c from
// now on. Of one that is not counted nobody can tell.
func writtenTo(c net.Conn) func() bool {
	for { // behind a proxy of https it is TLS within TLS
		secure, ok := c.(*tls.Conn)
		if !ok {
			break
		}
		c = secure.NetConn()
	}
	n, ok := c.(*counted)
	if !ok {
		return func() bool { return true }
	}
	before := n.tried.Load()
	return func() bool { return n.tried.Load() != before }
}
