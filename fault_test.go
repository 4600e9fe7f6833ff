package deed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// faults makes a pool whose connections can be made to fail.
type faults struct {
	away  atomic.Bool  // nothing can be dialled
	deaf  atomic.Int32 // that many more writes that contain mark lose their answer, once the server has given it, and the connection
	mark  []byte
	mu    sync.Mutex
	conns []*faultyConn // guarded by mu
	holes []*faultyConn // silenced; guarded by mu
}

func (f *faults) pool(t testing.TB, db *pgtest.DB, role pgtest.Role) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if f.away.Load() {
			return nil, errors.New("the network is away")
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &faultyConn{Conn: conn, faults: f, silenced: make(chan struct{}), closed: make(chan struct{})}
		f.mu.Lock()
		f.conns = append(f.conns, c)
		f.mu.Unlock()
		return c, nil
	}
	// A connection that went silent keeps its place in the pool for 15 seconds
	// while pgx waits for the server's farewell.
	cfg.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		f.end()
	})
	return pool
}

// end closes what is silent, as a network does in the end: the driver may listen
// to a connection of a pool that is not the client's own for ever.
func (f *faults) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.holes {
		_ = c.Close()
	}
}

// silence makes every connection of now a black hole: what is written goes
// nowhere, what is read never comes, and no error says so.
func (f *faults) silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.once.Do(func() { close(c.silenced) })
	}
	f.holes = append(f.holes, f.conns...)
	f.conns = nil
}

type faultyConn struct {
	net.Conn
	faults   *faults
	deafened atomic.Bool
	once     sync.Once
	silenced chan struct{}
	closing  sync.Once
	closed   chan struct{}
	deadline atomic.Pointer[time.Time]
}

func (c *faultyConn) Write(b []byte) (int, error) {
	select {
	case <-c.silenced:
		return len(b), nil
	default:
	}
	if c.faults.deaf.Load() > 0 && bytes.Contains(b, c.faults.mark) && c.faults.deaf.Add(-1) >= 0 {
		c.deafened.Store(true) // before it: the driver may listen while a write takes long
	}
	return c.Conn.Write(b)
}

func (c *faultyConn) Read(b []byte) (int, error) {
	select {
	case <-c.silenced:
		return 0, c.wait()
	default:
	}
	n, err := c.Conn.Read(b)
	select {
	case <-c.silenced:
		return 0, c.wait()
	default:
	}
	if c.deafened.Load() {
		_ = c.Close() // the server has answered, so it has done it
		return 0, net.ErrClosed
	}
	return n, err
}

// wait blocks as a silent network would: until the deadline or the close.
func (c *faultyConn) wait() error {
	for {
		timeout := time.Hour
		if d := c.deadline.Load(); d != nil && !d.IsZero() {
			timeout = time.Until(*d)
		}
		timer := time.NewTimer(min(max(timeout, 0), 20*time.Millisecond))
		select {
		case <-c.closed:
			timer.Stop()
			return net.ErrClosed
		case <-timer.C:
			if timeout <= 0 {
				return context.DeadlineExceeded
			}
		}
	}
}

func (c *faultyConn) SetDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetDeadline(t)
}

func (c *faultyConn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A commit whose answer never comes: the publisher does not know, the message
// is there, and publishing again under the same idempotency key stores
// nothing.
func TestContract_O1_CommitWhoseAnswerNeverComes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := &faults{mark: []byte("commit")}
	pool := f.pool(t, db, pgtest.App)
	m := message("orders", 1)
	m.IdempotencyKey = "order-1"
	f.deaf.Store(1)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := deed.Publish(ctx, tx, m)
		return err
	})
	if err == nil {
		t.Fatal("the commit's answer came")
	}
	again, err := deed.Publish(ctx, pool, m)
	if err != nil {
		t.Fatal(err)
	}
	if !again[0].Repeated {
		t.Error("the second try stored the message again")
	}
	if got := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`); got != 1 {
		t.Errorf("%d messages, want 1", got)
	}
}

// The same for workers: whatever exchange's answer is lost, the work is neither
// lost nor recorded twice.
func TestFault_ExchangesWhoseAnswersNeverCome(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := &faults{mark: []byte("deed.finish")}
	var r recorder
	c, _ := runOn(t, f.pool(t, db, pgtest.Worker), deed.Options{Subscriptions: []deed.Subscription{{
		Topic: "orders", Sink: &r, BatchSize: 20, Lease: 15 * time.Second,
	}}})
	for round := range 10 {
		f.deaf.Store(1)
		for n := range 20 {
			publish(t, db, message("orders", 100*round+n))
		}
	}
	drained(t, c)
	f.deaf.Store(0)
	messages, repeats := r.counts()
	if messages != 200 {
		t.Errorf("%d messages were delivered, want 200", messages)
	}
	// What is claimed in an exchange whose answer is lost comes back by its
	// lease, undelivered; what is finished in it stays finished.
	if repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
	if stale := c.Stats()[0].StaleFinishes; stale != 0 {
		t.Errorf("%d finishes that were only repeated count as stale", stale)
	}
}

// The database's sockets go silent, without an error: every loop comes back
// within its deadline and goes on over new connections.
func TestFault_BlackHoledDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := &faults{mark: []byte("nothing")}
	var r recorder
	c, _ := runOn(t, f.pool(t, db, pgtest.Worker), deed.Options{
		Deadline:      2 * time.Second,
		Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &r, Lease: 3 * time.Second}},
	})
	total := 0
	var late []string
	for round := range 3 {
		for n := range 50 {
			publish(t, db, message("orders", 100*round+n))
			total++
		}
		f.silence()
		started := time.Now()
		publish(t, db, message("orders", 100*round+99))
		total++
		eventually(t, "delivery over a new connection", func() bool { n, _ := r.counts(); return n == total })
		if took := time.Since(started); took > 25*time.Second {
			late = append(late, fmt.Sprintf("round %d: it took %s to notice", round, took))
		}
	}
	if len(late) > 1 { // a machine that is busy for half a minute may be late, and not always
		t.Error(late)
	}
	drained(t, c)
}

// The server ends all sessions, as a failover or an operator does.
func TestFault_TerminatedSessions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var r recorder
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &r, Lease: 15 * time.Second}}})
	conn := db.Conn(t, pgtest.Owner)
	for round := range 5 {
		for n := range 40 {
			publish(t, db, message("orders", 100*round+n))
		}
		pgtest.One[int](t, conn, `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and usename like '%worker%'`)
	}
	drained(t, c)
	if n, repeats := r.counts(); n != 200 || repeats != 0 {
		t.Errorf("%d messages with %d repeats, want 200 and 0: only the database failed", n, repeats)
	}
}
