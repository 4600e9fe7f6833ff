package deed_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// silentLook has one statement get no answer.
type silentLook struct{ asked atomic.Int64 }

func (s *silentLook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "Of the next ten thousand messages") {
		s.asked.Add(1)
		<-ctx.Done()
	}
	return ctx
}

func (*silentLook) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// While a sink is probed a claim looks for another tenant first. What that look
// takes is not taken from the outcomes that wait beside it: one that is never
// recorded would be repeated when its lease ends.
func TestBreaker_OutcomesDoNotWaitForTheLookForAnotherTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	look := &silentLook{}
	cfg.ConnConfig.Tracer = look
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var calls atomic.Int64
	sink := &recorder{fail: func(deed.Message) error {
		if calls.Add(1) == 1 {
			return deed.Unavailable(errors.New("away"), time.Millisecond)
		}
		return deed.AfterError(time.Hour, errors.New("not this one"))
	}}
	var log syncBuilder
	runOn(t, pool, deed.Options{
		Logger:        slog.New(slog.NewTextHandler(&log, nil)),
		Deadline:      20 * time.Second, // the look has a quarter of it, and the outcome the rest
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: sink}},
	})
	publish(t, db, message("orders", 1))
	eventually(t, "the failed attempt to be recorded", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(max(attempts), 0) from deed.pending`) == 1
	})
	if look.asked.Load() == 0 {
		t.Error("nobody looked for another tenant")
	}
	if strings.Contains(log.String(), "database exchange failed") {
		t.Errorf("outcomes were not recorded at the first go:\n%s", log.String())
	}
}
