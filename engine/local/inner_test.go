package local_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// keys notes the keys of calls in the order in which they come, each by a number of its own.
type keys struct {
	mu    sync.Mutex
	known []string // guarded by mu
	calls []string // guarded by mu
}

func (k *keys) note(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.known, run.Key(ctx)) {
		k.known = append(k.known, run.Key(ctx))
	}
	k.calls = append(k.calls, fmt.Sprint(slices.Index(k.known, run.Key(ctx))))
}

func (k *keys) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.calls, " ")
}

// waitsForAPerson waits until the step of a run does, after so many attempts.
func waitsForAPerson(t testing.TB, db *pgtest.DB, id string, attempts int) {
	t.Helper()
	eventually(t, fmt.Sprint("a person to be asked after attempt ", attempts), func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where run_id = $1::text::uuid and verdict = 'HOLD_OVER' and claim is null and attempt = $2)`, id, attempts)
	})
}

// A person who has a step done anew has its inner steps done anew that have not succeeded, whether or not their ends were recorded, and in whichever
// attempt the code comes to them; no key is used for two of these, and without the person's word it stays (R5).
func TestContract_R5_ANewKeyReachesInnerSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does string // in each attempt of the step; the last one ends well
		says string // of the person, before each but the first
		keys string // of the calls
	}{
		"was not recorded":                {"panics ends", "new", "0 1"},
		"was not recorded, its own":       {"panics ends", "same", "0 0"},
		"was not recorded, twice":         {"panics panics ends", "new same", "0 1 1"},
		"was not recorded, twice anew":    {"panics panics ends", "new new", "0 1 2"},
		"timed out":                       {"timed-out ends", "new", "0 1"},
		"is not come to at first":         {"timed-out before ends", "new same", "0 1"},
		"is not come to, and times out":   {"timed-out before timed-out ends", "new same same", "0 1 1"},
		"was not recorded, and times out": {"panics timed-out timed-out ends", "new same new", "0 1 1 2"},
		"times out under each":            {"panics timed-out ends", "new new", "0 1 2"},
		"is refused under a new one":      {"panics refused ends", "new same", "0 1 2"},
		"is refused, and done anew":       {"refused ends", "new", "0 1"},
		"was not recorded, then refused":  {"panics refused ends", "same same", "0 0 0"},
		"is refused at its first call":    {"before refused ends", "same same", "0 1"},
		"is refused late":                 {"panics timed-out refused ends", "new new same", "0 1 2 3"},
		"ended its goroutine":             {"goexits refused ends", "same same", "0 0 0"},
		"ended its goroutine, anew":       {"goexits refused ends", "new same", "0 1 2"},
		"ended that of a branch":          {"branch-goexits branch-refused branch-ends", "same same", "0 0 0"},
		"panicked, and was recovered":     {"recovers refused ends", "same same", "0 0 0"},
		"its transaction panicked":        {"tx-recovers tx-refused tx-ends", "same same", "0 0 0"},
		"its transaction was ended":       {"branch-tx-goexits branch-tx-refused branch-tx-ends", "same same", "0 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {main: {kind: go, handler: code}}}`)
			does, got := strings.Fields(c.does), &keys{}
			code(t, db, func(ctx context.Context) (_ string, err error) {
				now := does[run.Attempt(ctx)-1]
				if now == "before" {
					return "", errors.New("not even that far")
				}
				now, inBranch := strings.CutPrefix(now, "branch-")
				now, inTx := strings.CutPrefix(now, "tx-")
				do := func(ctx context.Context) (string, error) {
					got.note(ctx)
					switch now {
					case "panics", "recovers":
						panic("a test")
					case "goexits":
						runtime.Goexit()
					case "timed-out":
						return "", errors.New("timed out")
					case "refused":
						return "", run.NotDone(errors.New("refused"))
					}
					return "done", nil
				}
				charge := func(ctx context.Context) (string, error) {
					if inTx {
						return "done", run.Tx(ctx, "charge", func(ctx context.Context, _ pgx.Tx) error { _, err := do(ctx); return err })
					}
					return run.Step(ctx, "charge", do)
				}
				switch {
				case now == "recovers":
					defer func() { err = fmt.Errorf("recovered: %v", recover()) }()
				case inBranch:
					return "", run.Parallel(ctx, run.Branch{Name: "b", Do: func(ctx context.Context) error {
						_, err := charge(ctx)
						return err
					}})
				}
				return charge(ctx)
			})
			id := start(t, db, "a", nil)
			for n, says := range strings.Fields(c.says) {
				waitsForAPerson(t, db, id, n+1)
				if _, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "main", says == "new", audit.Act{Reason: "a test"}); err != nil {
					t.Fatal(err)
				}
			}
			want(t, "the run", ended(t, db, id), "COMPLETED")
			want(t, "keys", got.String(), c.keys)
		})
	}
}

// A transaction whose code panics is rolled back and has failed: where its step's code recovers and goes on, what it comes to when it runs again is what it came to before.
func TestCode_ATransactionThatPanics(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	db.Exec(t, pgtest.Owner, `create table public.orders (n int); grant all on public.orders to deed_worker; grant usage on schema public to deed_worker`)
	var tries atomic.Int64
	code(t, db, func(ctx context.Context) (string, error) {
		func() {
			defer func() { _ = recover() }()
			_ = run.Tx(ctx, "ship", func(ctx context.Context, tx pgx.Tx) error {
				tries.Add(1)
				if _, err := tx.Exec(ctx, `insert into public.orders values (1)`); err != nil {
					return err
				}
				panic("a test")
			})
		}()
		if _, err := run.Step(ctx, "b", says("")); err != nil {
			return "", err
		}
		return "rested", run.Sleep(ctx, "nap", 1100*time.Millisecond)
	})
	id := start(t, db, "a", nil)
	eventually(t, "it to end, or a person to be asked", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
	})
	want(t, "what it came to", statusOf(t, db, id)+errorOf(t, db, id, "main"), "COMPLETED")
	want(t, "why the transaction has failed", errorOf(t, db, id, "main/ship"), "PANIC")
	want(t, "tries", tries.Load(), 1)
	want(t, "orders", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.orders`), 0)
	sound(t, db)
}

// What code does after it has slept is as known as what it did before: its inner steps are recorded, and a refusal of one is for certain. What the
// code has done itself is not recorded, and is done again under its key (R5).
func TestContract_R5_AKeyAfterASleep(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var inner, own keys
	code(t, db, func(ctx context.Context) (string, error) {
		own.note(ctx)
		if _, err := run.Step(ctx, "before", says("")); err != nil {
			return "", err
		}
		if err := run.Sleep(ctx, "nap", 1100*time.Millisecond); err != nil {
			return "", err
		}
		return run.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			inner.note(ctx)
			if run.Attempt(ctx) == 1 {
				return "", run.NotDone(errors.New("refused"))
			}
			return "done", nil
		})
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "keys of the inner step", inner.String(), "0 1")
	want(t, "keys of the code, which ran before its sleep and after it", own.String(), "0 0 0")
	want(t, "attempts of the engine's", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(logical_attempt || ' ' || engine_attempt, ', ' order by run_seq) from deed.run_log where step_id = 'main' and event_type in ('StepFailed', 'StepCompleted')`), "1 1, 2 1")
	has(t, logOf(t, db, id), "StepCompleted main/before#1", "StepCompleted main/nap#1", "StepFailed main/charge#1", "StepFailed main#1", "StepCompleted main/charge#2", "StepCompleted main#2")
	sound(t, db)
}

// In an attempt that the code has begun anew, and which fails before it comes to an inner step, that may have been called before: a refusal in a later one
// says nothing of it, and the key stays.
func TestCode_AKeyAfterAnAttemptThatWasBegunAnew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var got keys
	var turns atomic.Int64
	code(t, db, func(ctx context.Context) (string, error) {
		turn := turns.Add(1)
		if turn == 2 {
			return "", errors.New("not even that far")
		}
		return run.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			got.note(ctx)
			switch turn {
			case 1:
				return "", deed.Unavailable(errors.New("no answer"), time.Millisecond) // is not recorded, as where the engine is killed
			case 3:
				return "", run.NotDone(errors.New("refused"))
			}
			return "done", nil
		})
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "attempts", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(logical_attempt || ' ' || engine_attempt, ', ' order by run_seq) from deed.run_log where step_id = 'main' and event_type in ('StepFailed', 'StepCompleted')`), "1 2, 2 1, 3 1")
	want(t, "keys", got.String(), "0 0 0")
	sound(t, db)
}

// An attempt that has failed before it did anything says nothing of the one before it: the key stays, and a person is asked (R5).
func TestContract_R5_NothingDoneSaysNothingOfBefore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {main: {kind: go, handler: code, when: "input.n > 0", retry: {attempts: 2, backoff: 1ms}}}}`)
	input := func(text string) {
		if _, err := db.Pool(pgtest.Owner).Exec(context.Background(), `select set_config('deed.act', 'run redaction', true); update deed.runs set input = '`+text+`'`); err != nil {
			t.Error(err)
		}
	}
	var got keys
	code(t, db, func(ctx context.Context) (string, error) {
		got.note(ctx)
		if run.Attempt(ctx) == 1 {
			input(`{}`) // by which its condition cannot be computed
			return "", errors.New("timed out")
		}
		return "done", nil
	})
	id := start(t, db, "a", map[string]int{"n": 1})
	waitsForAPerson(t, db, id, 2)
	want(t, "why", errorOf(t, db, id, "main"), "CONDITION_ERROR")
	input(`{"n": 1}`)
	if _, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "main", false, audit.Act{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "keys", got.String(), "0 0")
}

// A transaction of an inner step that the server has undone, as beside somebody who keeps the run locked, is made again: nothing was committed, so also
// where a step must not be repeated no person is asked (R5).
func TestContract_R5_ATransactionThatWasUndone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
	db.Exec(t, pgtest.Owner, `create table public.orders (n int); grant all on public.orders to deed_worker; grant usage on schema public to deed_worker`)
	id := start(t, db, "a", nil)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from deed.runs for update`); err != nil {
		t.Fatal(err)
	}
	var turns, tries atomic.Int64
	// The server undoes it in a fifth of a second: where this process gave up first, nobody would know what became of it.
	serve(t, db, local.Options{Deadline: pgtest.Patience, StateStore: local.StateStore{WriteLatencyBudget: pgtest.Patience}, Handlers: []local.Handler{
		local.Step("code", func(ctx context.Context, _ nothing) (string, error) {
			turns.Add(1)
			return "", run.Tx(ctx, "order", func(ctx context.Context, tx pgx.Tx) error {
				tries.Add(1)
				_, err := tx.Exec(ctx, `insert into public.orders values (1)`)
				return err
			})
		}),
	}})
	eventually(t, "the transaction to be made again", func() bool { return tries.Load() > 1 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "turns of the code", turns.Load(), 1)
	want(t, "orders", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.orders`), 1)
	sound(t, db)
}

// cutOff is a connection that is lost as what has a word in it is sent while it is armed: before the server sees that, or after, with its answer; or it falls
// silent then. That is noted before it is sent: the driver may listen while a write takes long.
type cutOff struct {
	net.Conn
	word  string
	how   string // before, after, silent
	armed *atomic.Bool
	gone  *atomic.Bool // this one
	its   *atomic.Bool // the one of the step's transaction: others commit, too
}

func (c cutOff) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "public.orders") {
		c.its.Store(true)
	}
	cut := (c.its.Load() || c.word != "commit\x00") && strings.Contains(string(b), c.word) && c.armed.CompareAndSwap(true, false)
	if cut {
		c.gone.Store(true)
	}
	if cut && c.how == "before" {
		_ = c.Conn.Close()
	}
	return c.Conn.Write(b)
}

func (c cutOff) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		switch {
		case !c.gone.Load() || err != nil: // its deadline ends a silence
			return n, err
		case c.how == "after":
			_ = c.Conn.Close()
			return 0, net.ErrClosed
		}
	}
}

// cutOffPool has the worker's connections, of which one is cut off each time that it is armed.
func cutOffPool(t testing.TB, db *pgtest.DB, word, how string, armed *atomic.Bool) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the words are in what is written
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return cutOff{conn, word, how, armed, new(atomic.Bool), new(atomic.Bool)}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A transaction of an inner step whose connection is lost before its COMMIT was sent, or whose record is not answered in time, is undone for certain: it
// is made again, also where a step must not be repeated. One whose COMMIT was sent may have been done, and then a person is asked (R5).
func TestContract_R5_ATransactionThatIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		word, how string
		again     bool
	}{
		"at what it does":              {"public.orders", "before", true},
		"at its record":                {"record_steps", "after", true},
		"its record is not answered":   {"record_steps", "silent", true},
		"its commit, and nobody knows": {"commit\x00", "after", false}, // not "read committed"
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
			db.Exec(t, pgtest.Owner, `create table public.orders (n int); grant all on public.orders to deed_worker; grant usage on schema public to deed_worker`)
			var armed atomic.Bool
			pool := cutOffPool(t, db, c.word, c.how, &armed)
			var turns, tries atomic.Int64
			store := local.StateStore{WriteLatencyBudget: pgtest.Patience}
			if c.how == "silent" {
				store.WriteLatencyBudget = time.Second
			}
			serveIn(t, pool, local.Options{Deadline: pgtest.Patience, StateStore: store, Handlers: []local.Handler{
				local.Step("code", func(ctx context.Context, _ nothing) (string, error) {
					turns.Add(1)
					return "", run.Tx(ctx, "order", func(ctx context.Context, tx pgx.Tx) error {
						armed.Store(tries.Add(1) == 1)
						_, err := tx.Exec(ctx, `insert into public.orders values (1)`)
						return err
					})
				}),
			}})
			id := start(t, db, "a", nil)
			eventually(t, "it to end, or a person to be asked", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
			})
			want(t, "turns of the code", turns.Load(), 1)
			if !c.again {
				want(t, "what nobody knows", errorOf(t, db, id, "main"), "OUTCOME_UNKNOWN")
				want(t, "how often it was made", tries.Load(), 1)
				return
			}
			want(t, "what it came to", statusOf(t, db, id)+errorOf(t, db, id, "main"), "COMPLETED")
			if tries.Load() < 2 {
				t.Error("no connection was lost")
			}
			want(t, "orders", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.orders`), 1)
			sound(t, db)
		})
	}
}
