package local_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/pgtest"
)

// wire is a way to a database that can fall silent: what is sent goes nowhere, no answer comes, and no error says so.
type wire struct {
	url string

	mu     sync.Mutex
	silent bool       // guarded by mu, as all below
	word   []byte     // connections on which it is sent fall silent
	mute   []net.Conn // silent ones
}

func newWire(t testing.TB, db *pgtest.DB) *wire {
	t.Helper()
	cfg, err := pgconn.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = l.Addr().String(), strings.ReplaceAll(query.Encode(), "+", "%20")
	w := &wire{url: u.String()}
	t.Cleanup(func() {
		_ = l.Close()
		w.speak()
	})
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
			far, err := net.Dial(network, address)
			if err != nil {
				_ = near.Close()
				continue
			}
			go w.carry(near, far, true)
			go w.carry(far, near, false)
		}
	}()
	return w
}

// carry passes on what comes from a connection, until there is silence.
func (w *wire) carry(from, to net.Conn, sent bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err == nil && w.hushed(from, to, sent, buffer[:n]) {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

func (w *wire) hushed(from, to net.Conn, sent bool, text []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	hush := w.silent || sent && len(w.word) > 0 && bytes.Contains(text, w.word)
	if hush {
		w.mute = append(w.mute, from, to)
	}
	return hush
}

// silence has it fall silent.
func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
}

// hush has what has the word in it go nowhere.
func (w *wire) hush(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word = []byte(word)
}

// speak ends the silence, as a network does: what was silent is cut, and may be dialled again.
func (w *wire) speak() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent, w.word = false, nil
	for _, c := range w.mute {
		_ = c.Close()
	}
	w.mute = nil
}

// pool is one over w, which sends the text of each statement.
func (w *wire) pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(w.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.MaxConns = 60 // a silent connection keeps its place for a while
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
