package pgtest

import (
	"context"
	"strings"
	"sync"
	"testing"

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
	matter string // whether it matters, in SQL
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

// Lock runs lock, a statement about id, in a transaction that ends after the first statement that begins while matter, a query about id, is true. before
// runs just before its end; the channel is closed after it.
func (h *Hold) Lock(lock, matter, id string, before func()) (letGo <-chan struct{}) {
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
	h.tx, h.matter, h.id, h.before = tx, matter, id, before
	return h.letGo
}

type mattersKey struct{}

// TraceQueryStart implements [pgx.QueryTracer].
func (h *Hold) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tx == nil || !strings.Contains(d.SQL, h.word) {
		return ctx
	}
	var matters bool
	if err := h.db.Pool(Owner).QueryRow(context.Background(), h.matter, h.id).Scan(&matters); err != nil {
		h.t.Errorf("pgtest: %v", err)
	}
	if matters {
		ctx = context.WithValue(ctx, mattersKey{}, true)
	}
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (h *Hold) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Value(mattersKey{}) == nil || h.tx == nil {
		return
	}
	h.before()
	if err := h.tx.Rollback(context.Background()); err != nil {
		h.t.Errorf("pgtest: %v", err)
	}
	h.tx = nil
	close(h.letGo)
}
