package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/inbox"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// consumer is a database without deed, with the inbox and a table of effects.
func consumer(t *testing.T) *pgtest.DB {
	t.Helper()
	pgtest.New(t) // makes the logins
	db := pgtest.Bare(t)
	conn := db.Conn(t, pgtest.Owner)
	for range 2 { // again is no error
		if err := inbox.Install(t.Context(), conn, "deed_test_app"); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, pgtest.Owner, `create table public.effects (seq bigint not null); grant select, insert on public.effects to public`)
	return db
}

// id is the n-th message's.
func id(t testing.TB, n int) deed.ID {
	t.Helper()
	parsed, err := deed.ParseID(fmt.Sprintf("01a1feaa-a4e5-7000-8000-%012x", n))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func effects(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.effects`)
}

func state(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

var errRefused = errors.New("refused")

func TestOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := consumer(t)
	app := db.Pool(pgtest.App)
	std := stdlib.OpenDBFromPool(app)
	defer std.Close()

	// once processes a message in a transaction of its own, by way of pgx or of
	// database/sql, and commits whatever fn said.
	ways := map[string]func(consumer string, n int, outcome error) (bool, error){
		"pgx": func(consumer string, n int, outcome error) (fresh bool, err error) {
			tx, beginErr := app.Begin(ctx)
			if beginErr != nil {
				t.Fatal(beginErr)
			}
			fresh, err = inbox.Once(ctx, tx, consumer, id(t, n), func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `insert into public.effects values ($1)`, n); err != nil {
					return err
				}
				return outcome
			})
			if commitErr := tx.Commit(ctx); commitErr != nil {
				t.Error(commitErr)
			}
			return fresh, err
		},
		"sql": func(consumer string, n int, outcome error) (fresh bool, err error) {
			tx, beginErr := std.BeginTx(ctx, nil)
			if beginErr != nil {
				t.Fatal(beginErr)
			}
			fresh, err = inbox.OnceSQL(ctx, tx, consumer, id(t, n), func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, `insert into public.effects values ($1)`, n); err != nil {
					return err
				}
				return outcome
			})
			if commitErr := tx.Commit(); commitErr != nil {
				t.Error(commitErr)
			}
			return fresh, err
		},
	}
	n, want := 0, 0
	for name, once := range ways {
		n++
		for _, step := range []struct {
			consumer string
			outcome  error
			fresh    bool
		}{
			{"a", errRefused, false},
			{"a", nil, true},
			{"a", nil, false},
			{"a", errRefused, false}, // is not called
			{"b", nil, true},
		} {
			fresh, err := once(step.consumer, n, step.outcome)
			if step.fresh {
				want++
			}
			if fresh != step.fresh || err != nil && !errors.Is(err, errRefused) {
				t.Errorf("%s: %+v: fresh %t, %v", name, step, fresh, err)
			}
			if got := effects(t, db); got != want {
				t.Errorf("%s: after %+v: %d effects, want %d", name, step, got, want)
			}
		}
		if _, err := once("", n, nil); state(err) != "DDARG" {
			t.Errorf("%s: without a consumer: %v", name, err)
		}
	}
}

// Of transactions that process one message at once, the second waits; it
// processes it if the first rolls back, and finds it processed otherwise.
func TestOnce_ConcurrentRepeats(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		isolation pgx.TxIsoLevel
		commit    bool
		fresh     bool
		state     string
	}{
		{"the first commits", pgx.ReadCommitted, true, false, ""},
		{"the first rolls back", pgx.ReadCommitted, false, true, ""},
		{"the first commits, under REPEATABLE READ", pgx.RepeatableRead, true, false, "40001"},
		{"the first rolls back, under REPEATABLE READ", pgx.RepeatableRead, false, true, ""},
		{"the first commits, under SERIALIZABLE", pgx.Serializable, true, false, "40001"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			db := consumer(t)
			app := db.Pool(pgtest.App)
			work := func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `insert into public.effects values (1)`)
				return err
			}
			first, err := app.BeginTx(ctx, pgx.TxOptions{IsoLevel: test.isolation})
			if err != nil {
				t.Fatal(err)
			}
			defer first.Rollback(context.WithoutCancel(ctx))
			if fresh, err := inbox.Once(ctx, first, "c", id(t, 1), work); !fresh || err != nil {
				t.Fatal(fresh, err)
			}
			second, err := app.BeginTx(ctx, pgx.TxOptions{IsoLevel: test.isolation})
			if err != nil {
				t.Fatal(err)
			}
			defer second.Rollback(context.WithoutCancel(ctx))
			pid := int(second.Conn().PgConn().PID())
			type result struct {
				fresh bool
				err   error
			}
			done := make(chan result, 1)
			go func() {
				fresh, err := inbox.Once(ctx, second, "c", id(t, 1), work)
				done <- result{fresh, err}
			}()
			waiting := time.NewTicker(5 * time.Millisecond)
			defer waiting.Stop()
			for range waiting.C {
				if pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_locks where pid = $1 and not granted)`, pid) {
					break
				}
				select {
				case got := <-done:
					t.Fatalf("the second did not wait: %+v", got)
				default:
				}
			}
			end := first.Rollback
			if test.commit {
				end = first.Commit
			}
			if err := end(ctx); err != nil {
				t.Fatal(err)
			}
			got := <-done
			if got.fresh != test.fresh || state(got.err) != test.state {
				t.Errorf("the second: fresh %t, %v; want %t, %q", got.fresh, got.err, test.fresh, test.state)
			}
			if err := second.Commit(ctx); err != nil && test.state == "" {
				t.Error(err)
			}
			if n := effects(t, db); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
		})
	}
}

// A panic in the middle leaves the message new.
func TestOnce_Panic(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := consumer(t)
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = inbox.Once(ctx, tx, "c", id(t, 1), func(pgx.Tx) error { panic("boom") })
	}()
	if fresh, err := inbox.Once(ctx, tx, "c", id(t, 1), func(pgx.Tx) error { return nil }); !fresh || err != nil {
		t.Error(fresh, err)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	db := consumer(t)
	db.Exec(t, pgtest.Owner, `
		insert into deed_inbox.processed (consumer, message_id, at)
		select 'c', gen_random_uuid(), now() - interval '31 days' from generate_series(1, 12000)`)
	if _, err := db.Pool(pgtest.App).Exec(t.Context(), `select deed_inbox.once('c', gen_random_uuid())`); err != nil {
		t.Fatal(err)
	}
	n, err := inbox.Purge(t.Context(), db.Pool(pgtest.App), inbox.Horizon)
	if n != 12000 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if left := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed_inbox.processed`); left != 1 {
		t.Errorf("%d are left, want the new one", left)
	}
	if _, err := inbox.Purge(t.Context(), db.Pool(pgtest.App), 0); state(err) != "DDARG" {
		t.Errorf("a horizon of nothing: %v", err)
	}
}

// Where the inbox is not there, or not for the login, the error says what to do.
func TestOnce_NotInstalled(t *testing.T) {
	t.Parallel()
	with := consumer(t)
	for name, c := range map[string]struct {
		db   *pgtest.DB
		role pgtest.Role
		want string
	}{
		"not installed": {pgtest.New(t), pgtest.App, "deed inbox install"},
		"not granted":   {with, pgtest.Worker, "--grant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := c.db.Pool(c.role)
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := inbox.Once(t.Context(), tx, "c", id(t, 1), func(pgx.Tx) error { return nil })
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Once: %v", err)
			}
			standard := stdlib.OpenDBFromPool(pool)
			defer standard.Close()
			tx, err := standard.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := inbox.OnceSQL(t.Context(), tx, "c", id(t, 1), func(*sql.Tx) error { return nil }); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("OnceSQL: %v", err)
			}
			if _, err := inbox.Purge(t.Context(), pool, inbox.Horizon); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Purge: %v", err)
			}
		})
	}
}

// What a topic carries has its effects in another database exactly once, while
// handlers fail after their commit, connections are cut in the middle of a
// transaction, and every relay is stopped and started again.
func TestOnce_AcrossDatabases(t *testing.T) {
	t.Parallel()
	for _, mode := range []deed.Mode{deed.ModeQueue, deed.ModeStream} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const messages = 200
			source, far := pgtest.New(t), consumer(t)
			pool := far.Pool(pgtest.App)
			var calls, repeats, cut atomic.Int64
			handle := func(ctx context.Context, m deed.Message) error {
				call := calls.Add(1)
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					fresh, err := inbox.Once(ctx, tx, "effects", m.ID, func(tx pgx.Tx) error {
						_, err := tx.Exec(ctx, `insert into public.effects values ($1)`, m.Seq)
						return err
					})
					if err == nil && !fresh {
						repeats.Add(1)
					}
					if call%11 == 0 { // as if this process died before the commit
						cut.Add(1)
						return errors.Join(err, tx.Conn().Close(ctx))
					}
					return err
				})
				if err == nil && call%5 == 0 { // or after it, and before it could say so
					return deed.AfterError(0, errRefused)
				}
				if err != nil {
					return deed.AfterError(0, err)
				}
				return nil
			}
			opts := deed.Options{
				Topics:        []deed.Topic{{Name: "orders", Mode: mode}},
				Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: deed.SinkFunc(handle), MaxAttempts: 100}},
			}
			relay := func() (stop func()) {
				ctx, cancel := context.WithCancel(t.Context())
				c, err := deed.New(ctx, source.Pool(pgtest.Worker), opts)
				if err != nil {
					t.Fatal(err)
				}
				var running sync.WaitGroup
				running.Go(func() {
					if err := c.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				stop = sync.OnceFunc(func() { cancel(); running.Wait() })
				t.Cleanup(stop) // where the test ends before its time
				return stop
			}
			stop := relay()
			for n := range messages {
				m := deed.Message{Topic: "orders", Key: fmt.Sprint(n % 10), Value: n}
				if _, err := deed.Publish(t.Context(), source.Pool(pgtest.App), m); err != nil {
					t.Fatal(err)
				}
				if n == messages/2 {
					stop()
					stop = relay()
				}
			}
			if !pgtest.Wait(pgtest.Patience, func() bool { return effects(t, far) >= messages }) {
				t.Fatalf("%d effects after %s", effects(t, far), pgtest.Patience)
			}
			stop()
			counts := pgtest.One[string](t, far.Pool(pgtest.Owner), `select count(*) || ' of ' || count(distinct seq) from public.effects`)
			if counts != fmt.Sprintf("%d of %[1]d", messages) {
				t.Errorf("effects: %s, want %d of %[2]d", counts, messages)
			}
			if repeats.Load() == 0 || cut.Load() == 0 {
				t.Errorf("%d repeats came and %d transactions were cut; the test shows nothing", repeats.Load(), cut.Load())
			}
		})
	}
}
