package main

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// network is a proxy that stands for a network between a program and the server: what
// is sent arrives half a round trip later, whatever follows it meanwhile.
type network struct {
	listener net.Listener
	server   *pgx.ConnConfig
	oneWay   time.Duration
	working  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// newNetwork listens until it is closed.
func newNetwork(ctx context.Context, url string, roundTrip time.Duration) (*network, error) {
	server, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &network{listener: l, server: server, oneWay: roundTrip / 2}
	n.working.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			n.working.Go(func() { n.serve(near) })
		}
	})
	return n, nil
}

func (n *network) address() string { return n.listener.Addr().String() }

func (n *network) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	n.closed = true
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.mu.Unlock()
	n.working.Wait()
}

// serve carries a connection until one of its ends closes it.
func (n *network) serve(near net.Conn) {
	defer near.Close()
	kind, address := pgconn.NetworkAddress(n.server.Host, n.server.Port)
	far, err := net.Dial(kind, address)
	if err != nil {
		return
	}
	defer far.Close()
	n.mu.Lock()
	closed := n.closed
	n.conns = append(n.conns, near, far)
	n.mu.Unlock()
	if closed {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			n.carry(way[1], way[0])
			_ = near.Close()
			_ = far.Close()
		})
	}
	both.Wait()
}

// carry brings what comes from one end to the other, each piece in its time.
func (n *network) carry(to io.Writer, from io.Reader) {
	type piece struct {
		due  time.Time
		data []byte
	}
	under := make(chan piece, 1000) // way
	var sending sync.WaitGroup
	sending.Go(func() {
		failed := false
		for p := range under {
			time.Sleep(time.Until(p.due))
			if !failed {
				_, err := to.Write(p.data)
				failed = err != nil
			}
		}
	})
	for {
		buffer := make([]byte, 16<<10)
		count, err := from.Read(buffer)
		if count > 0 {
			under <- piece{time.Now().Add(n.oneWay), buffer[:count]}
		}
		if err != nil {
			break
		}
	}
	close(under)
	sending.Wait()
}
