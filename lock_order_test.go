package deed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// failsOnce takes batches; the first attempt at each message fails, and the others wait at
// the gate.
type failsOnce struct {
	gate chan struct{}

	mu    sync.Mutex
	tried map[int64]bool
	waits int
}

func (*failsOnce) BatchSize() int { return 10 }

func (s *failsOnce) Deliver(_ context.Context, ms []deed.Message) []error {
	outcomes := make([]error, len(ms))
	s.mu.Lock()
	for i, m := range ms {
		if !s.tried[m.Seq] {
			s.tried[m.Seq] = true
			outcomes[i] = deed.AfterError(0, errors.New("not yet"))
		} else {
			s.waits++
		}
	}
	s.mu.Unlock()
	if !slices.ContainsFunc(outcomes, func(err error) bool { return err != nil }) {
		<-s.gate
	}
	return outcomes
}

// lockOrder is a stream whose lane the test has taken over, while three keys
// have one message aside each: heads, in the order in which their rows stand,
// which is not that of their hashes.
type lockOrder struct {
	*keyModel
	heads [][]any // id, key, hash, until when it is claimed
	held  pgx.Tx  // has the second of them
}

func newLockOrder(t *testing.T, db *pgtest.DB) *lockOrder {
	t.Helper()
	db.Broken() // the new owner is the test, and its window is made up
	m := &keyModel{t: t, db: db, topic: "orders"}
	m.sub = pgtest.One[int](t, db.Pool(pgtest.Worker), `select id from deed.subscriptions where topic = 'orders' and name = 's'`)
	m.take()
	// However long the test takes it stays the owner.
	db.Exec(t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() + interval '1 hour' where subscription = $1`, m.sub)
	o := &lockOrder{keyModel: m}
	o.heads = m.rows(`select p.id, l.key, p.key_hash, p.lease_until from deed.pending p join deed.log l on l.id = p.id order by p.id`)
	if o.heads[0][2].(int64) < o.heads[2][2].(int64) {
		t.Fatalf("the keys' hashes are in the order of their rows: %v", o.heads)
	}
	var err error
	if o.held, err = db.Pool(pgtest.Owner).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.held.Rollback(context.Background()) })
	if _, err := o.held.Exec(t.Context(), `select from deed.pending where id = $1 for update`, o.heads[1][0]); err != nil {
		t.Fatal(err)
	}
	return o
}

// waits reports whether a statement that has the text waits for a lock.
func (o *lockOrder) waits(text string) bool {
	return pgtest.One[bool](o.t, o.db.Pool(pgtest.Owner), `
		select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%' || $1 || '%')`, text)
}

// page puts one more message behind the third and the first, while others work
// on all three, and lets those go on.
func (o *lockOrder) page(ctx context.Context) {
	o.t.Helper()
	publish(o.t, o.db, keyed(o.heads[2][1].(string), 2), keyed(o.heads[0][1].(string), 2))
	at := o.rows(`
		select g.n, concat_ws('/', g.from_window, coalesce(g.to_window, 0), g.slot, g.id), g.from_window, w.h::text
		from deed.progress g join deed.windows w on w.n = g.from_window
		where g.subscription = $1 order by g.n desc limit 1`, o.sub)[0]
	rows := o.rows(`select id, slot from deed.log order by id desc limit 2`)
	page := make(chan error, 1)
	go func() {
		_, err := o.db.Pool(pgtest.Owner).Exec(ctx, `
			select deed.finish_page($1, (select lane from deed.lanes where subscription = $1), $2, $3, $4, $5, $6::text::xid8, null, null,
			  -2, 0, 2, $7, $8, 'w', $9, $10, $11, array['', ''], array[null, null]::interval[], array['park', 'park'])`,
			o.sub, o.fence, at[0], at[1], at[2], at[3], rows[1][0], rows[0][0],
			[]any{rows[1][0], rows[0][0]}, []any{rows[1][1], rows[0][1]}, []any{o.heads[2][2], o.heads[0][2]})
		page <- err
	}()
	var done bool
	var err error
	eventually(o.t, "the page to wait, or to be recorded", func() bool {
		select {
		case err = <-page:
			done = true
		default:
		}
		return done || o.waits("deed.finish_page(")
	})
	if err := o.held.Rollback(ctx); err != nil {
		o.t.Fatal(err)
	}
	if !done {
		err = <-page
	}
	if err != nil {
		o.t.Errorf("the page: %v", err)
	}
}

// An owner that has handed over its lane finishes what it had in hand of
// several keys while the new one puts messages behind them: one waits for the
// other, and not each for the other. If it renews its claims it waits for nobody.
func TestContract_O13_FinishAndPageTakeKeysInOneOrder(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"finish", "extend"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			sink := &failsOnce{gate: make(chan struct{}), tried: map[int64]bool{}}
			var logs syncBuilder
			c, _ := runStream(t, db, stream(sink, func(o *deed.Options) {
				o.Topics[0].Lanes, o.Subscriptions[0].Lease, o.Logger = 1, 9*time.Second, slog.New(slog.NewTextHandler(&logs, nil))
			}))
			open := sync.OnceFunc(func() { close(sink.gate) })
			defer open()
			publish(t, db, keyed("b", 1), keyed("c", 1), keyed("a", 1))
			eventually(t, "three keys' second attempts to be under way in one call", func() bool {
				sink.mu.Lock()
				defer sink.mu.Unlock()
				return sink.waits == 3
			})
			o := newLockOrder(t, db)
			if what == "finish" {
				open()
				eventually(t, "it to wait", func() bool { return o.waits("deed.finish(") || o.waits("deed.lock_keys(") })
			} else {
				eventually(t, "the claims of the keys that nobody has locked to be renewed", func() bool {
					return pgtest.One[bool](t, db.Pool(pgtest.Owner), `
						select bool_and(p.lease_until > u.until) from deed.pending p join unnest($1::bigint[], $2::timestamptz[]) u(id, until) on u.id = p.id`,
						[]any{o.heads[0][0], o.heads[2][0]}, []any{o.heads[0][3], o.heads[2][3]})
				})
				if o.waits("deed.extend(") || o.waits("deed.lock_keys(") {
					t.Error("a renewal waits for the key that is locked")
				}
			}
			o.page(t.Context())
			open()
			eventually(t, "the outcomes to be recorded", func() bool { return c.Stats()[0].Delivered == 3 })
			if strings.Contains(logs.String(), "deadlock") {
				t.Error(logs.String())
			}
			for _, r := range o.rows(`
				select key_hash, count(*), count(*) filter (where not parked) from deed.pending where key_hash is not null group by 1`) {
				if fmt.Sprint(r[1:]) != "[1 1]" {
					t.Errorf("of key %d %v messages are aside and %v of them free, want 1 and 1", r...)
				}
			}
		})
	}
}

// So does an operator who puts dead messages of several keys back.
func TestContract_O13_RedriveAndPageTakeKeysInOneOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := newStrictSink(func(deed.Message) error { return deed.Permanent(errors.New("never")) })
	runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 }))
	publish(t, db, keyed("b", 1), keyed("c", 1), keyed("a", 1))
	eventually(t, "three dead messages", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where dead_at is not null`) == 3
	})
	o := newLockOrder(t, db)
	redrive := make(chan error, 1)
	go func() {
		_, err := db.Pool(pgtest.Admin).Exec(t.Context(), `select deed.redrive('r', 'orders')`)
		redrive <- err
	}()
	eventually(t, "the redrive to wait", func() bool { return o.waits("deed.redrive(") })
	o.page(t.Context())
	if err := <-redrive; err != nil {
		t.Errorf("the redrive: %v", err)
	}
}
