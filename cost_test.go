package deed_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A cost is what a message takes: statements sent, rows written, and bytes of
// WAL without full-page images.
type cost struct{ statements, rows, wal float64 }

func (c cost) String() string {
	return fmt.Sprintf("%.4f statements, %.4f rows, %.1f bytes of WAL", c.statements, c.rows, c.wal)
}

// The bounds are what was measured on PostgreSQL 15 plus about a seventh. Who
// makes something cheaper lowers them; who raises one says why.
const (
	costMessages = 10_000
	costBatch    = 1000
)

func TestCost_PublishOneAtATime(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	m.publish(10, 1) // the catalogue is read, the first pages are made
	m.atMost(cost{statements: 1, rows: 2, wal: 990}, costMessages/5, func() { m.publish(costMessages/5, 1) })
}

func TestCost_PublishInBulk(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	m.publish(costBatch, costBatch)
	m.atMost(cost{statements: 1.0 / costBatch, rows: 2, wal: 950}, costMessages, func() { m.publish(costMessages, costBatch) })
}

// Draining writes a row for the claim, a row for the finish, and a receipt a
// batch; each batch takes one claim and one finish.
func TestCost_Drain(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	m.publish(costMessages, costBatch)
	batch := 1.0 / costBatch
	m.atMost(cost{statements: 3 * batch, rows: 2 + 1.5*batch, wal: 295}, costMessages, m.drain)
}

// meter counts on a server of its own, since WAL and statistics are a whole
// server's: without autovacuum, and without full-page images, which depend on
// when the last checkpoint was.
type meter struct {
	t      *testing.T
	db     *pgtest.DB
	owner  *pgx.Conn
	tracer *statementCounter
	next   int
}

func newMeter(t *testing.T) *meter {
	t.Helper()
	cluster := pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{
		"autovacuum": "off", "wal_level": "replica", "wal_compression": "off", "checkpoint_timeout": "1h",
	}})
	db := cluster.DB(t)
	// With a lease that is not renewed however slow the machine is.
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('cost', 'handler', p_lease => '1 hour')`)
	backfill(t, db, id)
	m := &meter{t: t, db: db, owner: db.Conn(t, pgtest.Owner), tracer: &statementCounter{}}
	db.Pool(pgtest.Worker).Reset() // an idle session tells late what it has written
	eventually(t, "the sessions before to end", func() bool {
		return pgtest.One[bool](t, m.owner, `
			select not exists (
			  select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
			)`)
	})
	return m
}

// pool's sessions are ended by its Close, which makes their statistics known.
func (m *meter) pool(role pgtest.Role) *pgxpool.Pool {
	m.t.Helper()
	cfg, err := pgxpool.ParseConfig(m.db.URL(role))
	if err != nil {
		m.t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = m.tracer
	cfg.ConnConfig.RuntimeParams["application_name"] = "cost"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	return pool
}

// publish stores n messages with payloads of 200 bytes, some a transaction.
func (m *meter) publish(n, each int) {
	m.t.Helper()
	pool := m.pool(pgtest.App)
	defer pool.Close()
	for range n / each {
		msgs := make([]deed.Message, each)
		for i := range msgs {
			m.next++
			msgs[i] = deed.Message{
				Topic: "cost", Key: fmt.Sprintf("order-%08d", m.next), Type: "order.placed",
				Payload: fmt.Appendf(nil, `{"order":"%08d","pad":"%s"}`, m.next, strings.Repeat("x", 173)),
			}
		}
		if _, err := deed.Publish(context.Background(), pool, msgs...); err != nil {
			m.t.Fatal(err)
		}
	}
}

// drain delivers what is pending, in calls of a whole claim: so that what is
// finished together does not depend on the machine's speed.
func (m *meter) drain() {
	m.t.Helper()
	pool := m.pool(pgtest.Worker)
	defer pool.Close()
	sink := &batches{size: costBatch}
	c, stop := runOn(m.t, pool, deed.Options{
		Worker:        "worker-1.example:12345", // each claimed row holds it
		Subscriptions: []deed.Subscription{{Topic: "cost", Sink: sink, BatchSize: costBatch, Concurrency: 2}},
	})
	drained(m.t, c)
	if err := stop(); err != nil {
		m.t.Fatal(err)
	}
	if got := sink.delivered(); got != m.next {
		m.t.Fatalf("delivered %d messages of %d", got, m.next)
	}
}

// atMost does something to n messages and compares its cost with a bound.
func (m *meter) atMost(bound cost, n int, do func()) {
	m.t.Helper()
	rows, wal, statements := m.rows(), m.wal(), m.tracer.count()
	do()
	per := func(v int64) float64 { return float64(v) / float64(n) }
	got := cost{wal: per(m.wal() - wal), statements: per(m.tracer.count() - statements)}
	got.rows = per(m.rows() - rows)
	m.t.Logf("a message costs %s", got)
	if got.statements > bound.statements || got.rows > bound.rows || got.wal > bound.wal {
		m.t.Errorf("a message costs %s;\nwant at most    %s", got, bound)
	}
	if floor := math.Floor(bound.rows); got.rows < floor || got.wal < bound.wal/2 || got.statements < bound.statements/2 {
		m.t.Errorf("a message costs %s, far below the bound %s: lower it, or the counting is broken", got, bound)
	}
}

// rows counts what finished sessions have written in deed's tables, but for those in
// which a worker writes by the clock, a row every few seconds, whatever comes.
func (m *meter) rows() int64 {
	m.t.Helper()
	eventually(m.t, "the other sessions to end", func() bool {
		return pgtest.One[bool](m.t, m.owner, `
			select not exists (
			  select from pg_stat_activity
			  where datname = current_database() and application_name = 'cost'
			)`)
	})
	return pgtest.One[int64](m.t, m.owner, `
		select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables
		where schemaname = 'deed' and relname not in ('attended', 'delivered', 'partitions', 'tallied')`)
}

func (m *meter) wal() int64 {
	m.t.Helper()
	return pgtest.One[int64](m.t, m.owner, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`)
}

// statementCounter counts publications, claims, extensions, finishes and
// failures; how often the workers look for news depends on the time they take.
type statementCounter struct {
	mu sync.Mutex
	n  int64
}

func (s *statementCounter) add(sql string) {
	for _, name := range []string{"deed.publish", "deed.claim", "deed.extend", "deed.finish", "deed.fail"} {
		if strings.Contains(sql, name) {
			s.mu.Lock()
			s.n++
			s.mu.Unlock()
			return
		}
	}
}

func (s *statementCounter) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.add(d.SQL)
	return ctx
}
func (s *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statementCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	s.add(d.SQL)
}
func (s *statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// batches is a sink that counts.
type batches struct {
	size int
	mu   sync.Mutex
	n    int
}

func (b *batches) BatchSize() int { return b.size }

func (b *batches) Deliver(_ context.Context, ms []deed.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += len(ms)
	return nil
}

func (b *batches) delivered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}
