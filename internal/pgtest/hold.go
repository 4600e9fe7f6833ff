package pgtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Hold keeps rows locked, as a transaction that is left open does, until a statement of its pool's has come upon them at a moment that matters,
// and has been answered: so what asks again meets rows that are free.
type Hold struct {
	Pool *pgxpool.Pool // whose statements are looked at

	db   *DB
	t    testing.TB
	word string

	mu     sync.Mutex
	tx     pgx.Tx // guarded by mu, as is what follows; nil: nothing is locked
	left   string // how long it is until it matters, in SQL
	id     string
	before func()
	letGo  chan struct{}
}

// Hold makes one, of statements that have word in them.
func (db *DB) Hold(t testing.TB, role Role, size int32, word string) *Hold {
	t.Helper()
	h := &Hold{db: db, t: t, word: word, letGo: make(chan struct{})}
	cfg := db.NewPool(role, size).Config()
	cfg.ConnConfig.Tracer = h
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.pools = append(db.pools, pool)
	h.Pool = pool
	return h
}

// soon is how long before it matters statements are kept back until it does: of one that is under way then nobody could say which it has met.
const soon = 3 * time.Second

// Lock runs lock, a statement about id, in a transaction that ends after the first statement by whose end nothing is left of what left, a query about id,
// says in time; one that would begin soon before waits for that, too. before runs just before the transaction's end; the channel is closed after it.
func (h *Hold) Lock(lock, left, id string, before func()) (letGo <-chan struct{}) {
	h.t.Helper()
	tx, err := h.db.Pool(Owner).Begin(context.Background())
	if err == nil {
		_, err = tx.Exec(context.Background(), lock, id)
	}
	if err != nil {
		h.t.Fatalf("pgtest: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tx, h.left, h.id, h.before = tx, left, id, before
	return h.letGo
}

type metKey struct{}

// TraceQueryStart implements [pgx.QueryTracer].
func (h *Hold) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(d.SQL, h.word) {
		return ctx
	}
	for {
		h.mu.Lock()
		left, locked := h.leftNow()
		h.mu.Unlock()
		if !locked {
			return ctx
		}
		if left <= 0 || left > soon {
			return context.WithValue(ctx, metKey{}, true)
		}
		<-time.After(left)
	}
}

// leftNow says how long it is until it matters, and whether anything is locked; with mu held.
func (h *Hold) leftNow() (left time.Duration, locked bool) {
	if h.tx == nil {
		return 0, false
	}
	if err := h.db.Pool(Owner).QueryRow(context.Background(), h.left, h.id).Scan(&left); err != nil {
		h.t.Errorf("pgtest: %v", err)
	}
	return left, true
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (h *Hold) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(metKey{}) == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if left, locked := h.leftNow(); !locked || left > 0 { // what is over stays over while it is locked
		return
	}
	h.before()
	if err := h.tx.Rollback(context.Background()); err != nil {
		h.t.Errorf("pgtest: %v", err)
	}
	h.tx = nil
	close(h.letGo)
}
