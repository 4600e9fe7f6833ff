package deed_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// counter counts the statements that a client sends, by name.
type counter struct {
	mu         sync.Mutex
	roundTrips int
	claims     int
	finishes   int
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

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// One round trip finishes a batch and claims the next: draining 2,000 messages
// takes little more than 2,000 divided by the batch.
func TestContract_O7_OneRoundTripFinishesAndClaims(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	var count counter
	cfg.ConnConfig.Tracer = &count
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
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
					return deed.Discard(errors.New("two"))
				}
				return nil
			}}
			c, stop := runOn(t, pools[pgtest.Worker], deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: r, Lease: time.Second}}})
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
			admin, err := deed.New(ctx, pools[pgtest.Admin], deed.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := admin.Redrive(ctx, deed.Redrive{Topic: "orders", Seqs: []int64{published[1].Seq}}); n != 1 || err != nil {
				t.Errorf("redrive: %d, %v", n, err)
			}
			for name, err := range map[string]error{
				"status":   second(admin.Status(ctx)),
				"messages": second(admin.Messages(ctx, deed.Filter{Topic: "orders", Since: time.Hour, Payload: true})),
				"message":  second(admin.Message(ctx, published[0].ID.String(), true)),
				"dead":     second(admin.Dead(ctx, deed.DeadFilter{})),
				"topics":   second(admin.Topics(ctx)),
				"settings": second(admin.Settings(ctx)),
				"verify":   second(admin.Verify(ctx)),
			} {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
