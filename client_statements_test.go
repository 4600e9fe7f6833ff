package deed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// counter counts the statements that a client sends, by name.
type counter struct {
	mu         sync.Mutex
	roundTrips int
	claims     int
	finishes   int
	pages      int
}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roundTrips++
	return ctx
}

func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.Contains(data.SQL, "deed.claim("):
		c.claims++
	case strings.Contains(data.SQL, "deed.finish("):
		c.finishes++
	}
}

func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(data.SQL, "deed.page(") {
		c.pages++
	}
	return ctx
}

// counted is a pool of the worker's whose statements are counted.
func counted(t testing.TB, db *pgtest.DB) (*pgxpool.Pool, *counter) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	count := &counter{}
	cfg.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, count
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// One round trip finishes a batch and claims the next: draining 2,000 messages
// takes little more than 2,000 divided by the batch.
func TestContract_O7_OneRoundTripFinishesAndClaims(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, count := counted(t, db)
	subscribe(t, db, "orders", "handler")
	msgs := make([]deed.Message, 2000)
	for n := range msgs {
		msgs[n] = message("orders", n)
	}
	publish(t, db, msgs...)
	b := &batchRecorder{size: 100}
	c, stop := runOn(t, pool, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: b, Concurrency: 1, BatchSize: 100}}})
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, repeats := b.counts(); n != 2000 || repeats != 0 {
		t.Fatalf("delivered %d messages with %d repeats", n, repeats)
	}
	// 20 batches; those at the start and the end, and looks that find nothing,
	// are the rest.
	if count.roundTrips > 60 || count.finishes > 40 {
		t.Errorf("%d round trips with %d finishes and %d claims for 20 batches", count.roundTrips, count.finishes, count.claims)
	}
}

// What has just come to a stream comes with its window, in the watcher's
// statement; only what is much, in number or in bytes, is read page by page.
func TestStream_FewRowsComeWithTheirWindow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, count := counted(t, db)
	sink := &recorder{}
	c, _ := runOn(t, pool, stream(sink))
	eventually(t, "the lanes to be held", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(worker) from deed.lanes`) == 4
	})
	pages := func() int {
		drained(t, c)
		count.mu.Lock()
		defer count.mu.Unlock()
		defer func() { count.pages = 0 }()
		return count.pages
	}
	pages()
	n := 0
	come := func(of int, msgs ...deed.Message) {
		n += of
		publish(t, db, msgs...)
		eventually(t, fmt.Sprintf("%d to come", n), func() bool { got, _ := sink.counts(); return got == n })
	}
	for i := range 50 {
		come(1, keyed(fmt.Sprint(i), i))
	}
	if got := pages(); got > 5 { // while the watcher's first windows come the lanes may be behind
		t.Errorf("50 messages, one after the other, took %d pages", got)
	}
	many := make([]deed.Message, 251)
	for i := range many {
		many[i] = keyed(fmt.Sprint(i), i)
	}
	come(251, many...)
	if got := pages(); got == 0 {
		t.Error("251 messages at once took no page")
	}
	big := deed.Message{Topic: "orders", Key: "big", Payload: append([]byte("{}"), bytes.Repeat([]byte(" "), 50_000)...)}
	come(1, big)
	if got := pages(); got == 0 {
		t.Error("50 kB, more than may hold a window up, took no page")
	}
	inOrder(t, sink.list)
	if _, repeats := sink.counts(); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
}

// Nothing needs a session: without named prepared statements, as through a
// pooler in transaction mode, everything works.
func TestClient_WithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			db := pgtest.New(t)
			pools := map[pgtest.Role]*pgxpool.Pool{}
			for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker, pgtest.Admin} {
				cfg, err := pgxpool.ParseConfig(db.URL(role))
				if err != nil {
					t.Fatal(err)
				}
				cfg.ConnConfig.DefaultQueryExecMode = mode
				pools[role], err = pgxpool.NewWithConfig(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pools[role].Close)
			}
			r := &recorder{fail: func(m deed.Message) error {
				switch {
				case string(m.Payload) == `{"n":1}` && m.Attempt == 1:
					return deed.After(0)
				case string(m.Payload) == `{"n":2}`:
					return deed.Permanent(errors.New("two"))
				}
				return nil
			}}
			c, stop := runOn(t, pools[pgtest.Worker], deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: r, Lease: time.Minute}}})
			m := message("orders", 3)
			m.Key, m.Headers, m.IdempotencyKey, m.ProcessAfter = "k", map[string]string{"a": "b"}, "i", time.Now()
			published, err := deed.Publish(ctx, pools[pgtest.App], message("orders", 1), message("orders", 2), m,
				deed.Message{Topic: "orders", Payload: []byte{0, 0xff}, ContentType: "x/y"})
			if err != nil {
				t.Fatal(err)
			}
			drained(t, c)
			if n, repeats := r.counts(); n != 3 || repeats != 0 {
				t.Errorf("delivered %d with %d repeats", n, repeats)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			operator, err := admin.New(ctx, pools[pgtest.Admin], admin.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := operator.Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders", Seqs: []int64{published[1].Seq}}}); n != 1 || err != nil {
				t.Errorf("redrive: %d, %v", n, err)
			}
			for name, err := range map[string]error{
				"status":   second(operator.Status(ctx)),
				"messages": second(operator.Messages(ctx, admin.Filter{Topic: "orders", Since: time.Hour, Payload: true})),
				"message":  second(operator.Message(ctx, published[0].ID.String(), true)),
				"dead":     second(operator.Dead(ctx, admin.DeadFilter{})),
				"topics":   second(operator.Topics(ctx, "", 10)),
				"settings": second(operator.Settings(ctx)),
				"verify":   second(operator.Verify(ctx)),
			} {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
