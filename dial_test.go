package deed

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/pgtest"
)

// silentConn is a connection over which nothing arrives any more once it is
// silent, and nothing comes back.
type silentConn struct {
	net.Conn
	silent atomic.Bool
	closed chan struct{}
	once   sync.Once
	bound  chan struct{} // closed once it has a deadline in the future
	first  sync.Once
}

func (c *silentConn) Write(b []byte) (int, error) {
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// SetDeadline takes a deadline away late, as on a machine that is busy: once the
// driver's other hand has set its own, if that does not wait for this one.
func (c *silentConn) SetDeadline(t time.Time) error {
	switch {
	case t.IsZero() && c.silent.Load():
		select {
		case <-c.bound:
		case <-time.After(time.Second / 2):
		}
	case t.After(time.Now()):
		defer c.first.Do(func() { close(c.bound) })
	}
	return c.Conn.SetDeadline(t)
}

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A connection that went silent leaves the pool within closeGrace, whichever
// of the driver's two hands sets its deadline last.
func TestFarewell_OfASilentConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, ask := range map[string]func(context.Context, *pgxpool.Conn) error{
		"a statement": func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, `select 1`)
			return err
		},
		"a statement that is prepared": func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, `select $1::int`, 1)
			return err
		},
		"a batch": func(ctx context.Context, conn *pgxpool.Conn) error {
			var batch pgx.Batch
			batch.Queue(`select $1::int`, 1)
			batch.Queue(`select $1::int + 1`, 1)
			return conn.SendBatch(ctx, &batch).Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, server := silentPool(t, db.URL(pgtest.Worker))
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			server().silent.Store(true)
			// What was not sent before its time was over leaves the connection as it was.
			for wait := 100 * time.Millisecond; !conn.Conn().IsClosed() && wait < time.Minute; wait *= 5 {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				if ask(ctx, conn) == nil {
					t.Error("an answer came")
				}
				cancel()
			}
			conn.Release()
			select {
			case <-server().closed:
			case <-time.After(10 * closeGrace):
				t.Error("the connection still keeps its place in the pool")
				_ = server().Close()
			}
		})
	}
}

// silentPool returns a pool of one connection, which is the last that can be
// opened, and a function that returns it.
func silentPool(t *testing.T, url string) (*pgxpool.Pool, func() *silentConn) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	var server atomic.Pointer[silentConn]
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if server.Load() != nil {
			return nil, errors.New("the network is away")
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		server.Store(&silentConn{Conn: conn, closed: make(chan struct{}), bound: make(chan struct{})})
		return server.Load(), nil
	}
	boundCloses(config.ConnConfig)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, server.Load
}
