package deed_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// What was published in the client's own transaction, by whatever call, is looked for
// at once, and not after the watcher's pause, of up to a third of a second.
func TestClient_InTxWakes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.New(t)
	came := make(chan time.Time, 100)
	sink := deed.SinkFunc(func(context.Context, deed.Message) error { came <- time.Now(); return nil })
	c, _ := runOn(t, db.Pool(pgtest.Team), deed.Options{Subscriptions: []deed.Subscription{{Topic: "jobs", Name: "s", Sink: sink}}})
	eventually(t, "the client to be ready", func() bool { return c.Ready(ctx) == nil })
	for name, publish := range map[string]func(tx *deed.Tx) error{
		"tx.Publish": func(tx *deed.Tx) error { return tx.Publish(ctx, message("jobs", 1)) },
		"Publish":    func(tx *deed.Tx) error { _, err := deed.Publish(ctx, tx, message("jobs", 1)); return err },
	} {
		var took, calls []time.Duration
		woken := false
		for round := 0; round < 5 && !woken; round++ { // a busy machine is late, and not always
			took, calls = nil, nil
			for range 9 {
				time.Sleep(700 * time.Millisecond) // the watcher comes to rest
				began := time.Now()
				if _, err := c.InTx(ctx, pgx.TxOptions{}, publish); err != nil {
					t.Fatal(err)
				}
				done := time.Now()
				calls = append(calls, done.Sub(began))
				took = append(took, (<-came).Sub(done))
			}
			slices.Sort(took)
			slices.Sort(calls)
			// A look and a claim take no longer than the transaction did, by much.
			woken = took[4] < max(30*time.Millisecond, 3*calls[4])
		}
		if t.Log(name, took, calls); !woken {
			t.Errorf("%s: half of them came after %s or more, and half of the calls took %s at the most", name, took[4], calls[4])
		}
	}
}

// A watcher that fails asks ever less often, however much is committed meanwhile.
func TestClient_WakingKeepsTheBackOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // a right is taken away
	var failures atomic.Int64
	log := slog.New(counting{slog.DiscardHandler, "watching the log failed; will try again", &failures})
	c, _ := runOn(t, db.Pool(pgtest.Team), deed.Options{Logger: log, Subscriptions: []deed.Subscription{{Topic: "jobs", Name: "s", Sink: &recorder{}}}})
	eventually(t, "the client to be ready", func() bool { return c.Ready(context.Background()) == nil })
	db.Exec(t, pgtest.Owner, `revoke execute on function deed.watch from public, deed_worker, deed_admin`)
	eventually(t, "it to fail", func() bool { return failures.Load() > 0 })
	before := failures.Load()
	commits := int64(0)
	for began := time.Now(); time.Since(began) < 3*time.Second; commits++ {
		if _, err := c.InTx(t.Context(), pgx.TxOptions{}, func(tx *deed.Tx) error { return tx.Publish(t.Context(), message("elsewhere", 1)) }); err != nil {
			t.Fatal(err)
		}
	}
	// After 50, 100, 200 … milliseconds, or half of each.
	if n := failures.Load() - before; n > 15 {
		t.Errorf("%d failures beside %d commits in 3 seconds", n, commits)
	}
}

// counting counts the records with a text.
type counting struct {
	slog.Handler
	text string
	n    *atomic.Int64
}

func (c counting) Enabled(context.Context, slog.Level) bool { return true }

func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c counting) Handle(_ context.Context, r slog.Record) error {
	if r.Message == c.text {
		c.n.Add(1)
	}
	return nil
}
