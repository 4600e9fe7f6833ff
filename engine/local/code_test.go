package local_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

const codePlan = `{plan: p, version: "1", steps: {main: {kind: go, handler: code, retry: {attempts: 3, backoff: 1ms}}}}`

// code serves the plan's code until the test ends.
func code(t testing.TB, db *pgtest.DB, do func(context.Context) (string, error)) (stop func()) {
	t.Helper()
	_, stop = serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("code", func(ctx context.Context, _ nothing) (string, error) { return do(ctx) }),
	}})
	return stop
}

// outputOf is what a step has returned.
func outputOf(t testing.TB, db *pgtest.DB, id, step string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce((select l.event_data ->> 'output' from deed.run_log l where l.run_id = $1::text::uuid and l.step_id = $2 and l.event_type = 'StepCompleted'), '')`, id, step)
}

// messageOf is the text of the newest failure of a step.
func messageOf(t testing.TB, db *pgtest.DB, id, step string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce((select l.event_data -> 'error' ->> 'message' from deed.run_log l where l.run_id = $1::text::uuid and l.step_id = $2 and l.event_type = 'StepFailed' order by l.run_seq desc limit 1), '')`, id, step)
}

func sound(t testing.TB, db *pgtest.DB) {
	t.Helper()
	want(t, "what does not add up", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(invariant || ': ' || detail, ', '), '') from (select invariant, detail from deed.verify_steps() union all select invariant, detail from deed.verify_runs()) v`), "")
}

func says(what string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return what, nil }
}

// Code of all kinds of inner steps: what they return is remembered by name, and each has events of its own.
func TestCode_RemembersInnerSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	db.Exec(t, pgtest.Owner, `create table public.orders (run text); grant all on public.orders to deed_worker; grant usage on schema public to deed_worker`)
	var keys sync.Map
	var charged, turns atomic.Int64
	code(t, db, func(ctx context.Context) (string, error) {
		turns.Add(1)
		paid, err := run.Step(ctx, "charge", func(ctx context.Context) (map[string]int, error) {
			charged.Add(1)
			keys.Store(run.Key(ctx), run.Attempt(ctx))
			return map[string]int{"amount": 42}, nil
		})
		if err != nil {
			return "", err
		}
		for _, item := range []string{"a", "b/[x]"} {
			if _, err := run.Step(ctx, run.Named("item", item), says(item)); err != nil {
				return "", err
			}
		}
		err = run.Tx(ctx, "order", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into public.orders values ($1)`, run.Key(ctx))
			return err
		})
		if err != nil {
			return "", err
		}
		if run.Attempt(ctx) == 1 {
			return "", errors.New("once")
		}
		return fmt.Sprint("paid ", paid["amount"]), nil
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "its output", outputOf(t, db, id, "main"), "paid 42")
	want(t, "turns", turns.Load(), 2)
	want(t, "charges", charged.Load(), 1)
	want(t, "orders", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.orders`), 1)
	key := pgtest.One[string](t, db.Pool(pgtest.Owner), `select encode(deed.idempotency_key($1, 'main/charge', '1'), 'hex')`, id)
	if n, ok := keys.Load(key); !ok || n != 1 {
		t.Errorf("the inner step's key is not that of its name, or its attempt is %v", n)
	}
	// Where the start of main stands goes by how slow the machine is: before its end, which deed.verify looks at.
	events := regexp.MustCompile(`StepStarted main#\d, `).ReplaceAllString(logOf(t, db, id), "")
	want(t, "events", events, "RunApproved, RunStarted, StepStarted main/charge#1, StepCompleted main/charge#1, StepStarted main/item[a]#1, StepCompleted main/item[a]#1, "+
		"StepStarted main/item[b%2F%5Bx%5D]#1, StepCompleted main/item[b%2F%5Bx%5D]#1, StepStarted main/order#1, StepCompleted main/order#1, "+
		"StepFailed main#1, StepCompleted main#2, RunCompleted")
	sound(t, db)
}

// An inner step that has failed is tried again in the code's next attempt, under its key unless nothing was done; code that has gone on after a
// failure does not get another answer. What it gets is what is recorded, the first time, too.
func TestContract_R5_InnerFailures(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var mu sync.Mutex
	var calls []string
	key := map[string]string{}
	code(t, db, func(ctx context.Context) (string, error) {
		_, err := run.Step(ctx, "handled", func(ctx context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, "handled")
			return "", &run.Failure{Code: "NO_STOCK", Final: true, Err: errors.New("none left")}
		})
		if f, ok := errors.AsType[*run.Failure](err); !ok || f.Code != "NO_STOCK" || f.Error() != "none left" {
			return "", fmt.Errorf("another error: %v", err)
		}
		if _, err := run.Step(ctx, "instead", says("other")); err != nil {
			return "", err
		}
		return run.Step(ctx, "flaky", func(ctx context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprint("flaky ", run.Attempt(ctx)))
			key[fmt.Sprint(run.Attempt(ctx))] = run.Key(ctx)
			switch run.Attempt(ctx) {
			case 1:
				return "", errors.New("timed out")
			case 2:
				return "", run.NotDone(errors.New("refused"))
			}
			return "done", nil
		})
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "calls", strings.Join(calls, ", "), "handled, flaky 1, flaky 2, flaky 3")
	want(t, "the key after a time-out is the same", key["2"] == key["1"], true)
	want(t, "the key after a refusal that follows a time-out is the same", key["3"] == key["1"], true)
	has(t, logOf(t, db, id), "StepFailed main/handled#1", "StepCompleted main/instead#1", "StepFailed main/flaky#1", "StepFailed main#1", "StepFailed main/flaky#2", "StepFailed main#2",
		"StepCompleted main/flaky#3", "StepCompleted main#3, RunCompleted")
	sound(t, db)
}

// The key of an inner step moves on where it is known that nothing was done under it, and there alone (R5).
func TestContract_R5_TheKeyOfAnInnerStep(t *testing.T) {
	t.Parallel()
	timedOut, refused := errors.New("timed out"), run.NotDone(errors.New("refused"))
	for name, c := range map[string]struct {
		ends []error // by attempt
		keys string  // by number, in the order in which they come
	}{
		"refused":                 {[]error{refused, nil}, "0 1"},
		"timed out":               {[]error{timedOut, nil}, "0 0"},
		"timed out, then refused": {[]error{timedOut, refused, nil}, "0 0 0"},
		"refused, then timed out": {[]error{refused, timedOut, nil}, "0 1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, codePlan)
			var mu sync.Mutex
			var known, keys []string
			code(t, db, func(ctx context.Context) (string, error) {
				return run.Step(ctx, "charge", func(ctx context.Context) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if !slices.Contains(known, run.Key(ctx)) {
						known = append(known, run.Key(ctx))
					}
					keys = append(keys, fmt.Sprint(slices.Index(known, run.Key(ctx))))
					return "", c.ends[run.Attempt(ctx)-1]
				})
			})
			want(t, "the run", ended(t, db, start(t, db, "a", nil)), "COMPLETED")
			mu.Lock()
			defer mu.Unlock()
			want(t, "keys", strings.Join(keys, " "), c.keys)
		})
	}
}

// A name that is used twice is not remembered for another: the run is held, and nothing was executed for it.
func TestCode_ANameIsUsedOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var calls atomic.Int64
	code(t, db, func(ctx context.Context) (string, error) {
		for range 2 {
			_, _ = run.Step(ctx, "item", func(context.Context) (string, error) { calls.Add(1); return "", nil })
		}
		return "swallowed", nil
	})
	id := start(t, db, "a", nil)
	eventually(t, "the run to be held", func() bool { return errorOf(t, db, id, "main") == "RUN_DIVERGED" })
	has(t, messageOf(t, db, id, "main"), "main/item twice", "run.Named")
	want(t, "calls", calls.Load(), 1)
	want(t, "the run", statusOf(t, db, id), "RUNNING")
	sound(t, db)
}

// New code for an old run (R5): a step that was renamed or left out is found before anything new is executed, both are named, and the run is held;
// code that says what the step was called goes on, and what is done is not done again.
func TestContract_R5_CodeThatHasDiverged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var calls atomic.Int64
	pay := func(context.Context) (string, error) { calls.Add(1); return "paid", nil }
	stop := code(t, db, func(ctx context.Context) (string, error) {
		if _, err := run.Step(ctx, "charge", pay); err != nil {
			return "", err
		}
		return "", run.Sleep(ctx, "cool-off", 24*time.Hour)
	})
	id := start(t, db, "a", nil)
	asleep := func() {
		t.Helper()
		eventually(t, "it to sleep", func() bool {
			return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where parked and process_after > now() + interval '23 hours')`)
		})
	}
	asleep()
	stop()
	wake := func() {
		db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = now()`)
	}
	wake()
	diverging := code(t, db, func(ctx context.Context) (string, error) {
		return run.Step(ctx, "pay", pay)
	})
	eventually(t, "the run to be held", func() bool { return errorOf(t, db, id, "main") == "RUN_DIVERGED" })
	has(t, messageOf(t, db, id, "main"), "main/pay", "main/charge", "run.Was")
	want(t, "charges", calls.Load(), 1)
	want(t, "the run", statusOf(t, db, id), "RUNNING")
	diverging()
	code(t, db, func(ctx context.Context) (string, error) {
		paid, err := run.Step(ctx, "pay", pay, run.Was("charge"))
		if err != nil {
			return "", err
		}
		return paid, run.Sleep(ctx, "cool-off", 24*time.Hour) // it began a while ago
	})
	if _, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "main", false, audit.Act{Reason: "mended"}); err != nil {
		t.Fatal(err)
	}
	asleep()
	want(t, "charges", calls.Load(), 1)
	sound(t, db)
}

// A sleep counts from when it was first asked for. Meanwhile the code has ended, also where it has swallowed the error, and what it does after it
// is not done before; branches beside it go on.
func TestCode_Sleeps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var early, turns atomic.Int64
	code(t, db, func(ctx context.Context) (string, error) {
		turns.Add(1)
		_ = run.Parallel(ctx,
			run.Branch{Name: "sleeps", Do: func(ctx context.Context) error {
				_ = run.Sleep(ctx, "long", 1500*time.Millisecond)
				_, err := run.Step(ctx, "after", func(context.Context) (string, error) {
					if turns.Load() == 1 { // of the turn that has fallen asleep; when the next one began is looked at below
						early.Add(1)
					}
					return "", nil
				})
				return err
			}},
			run.Branch{Name: "goes-on", Do: func(ctx context.Context) error {
				_, err := run.Step(ctx, "a", says(""))
				return err
			}},
		)
		return run.Step(ctx, "last", says("rested"))
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "its output", outputOf(t, db, id, "main"), "rested")
	want(t, "steps that came before their time", early.Load(), 0)
	want(t, "the sleep took its time", pgtest.One[bool](t, db.Pool(pgtest.Owner), `
		select max(persisted_at) >= min(event_data ->> 'until')::timestamptz from deed.run_log where step_id = 'main/sleeps/long'`), true)
	has(t, logOf(t, db, id), "StepCompleted main/goes-on/a#1", "StepCompleted main/sleeps/long#1") // which went on meanwhile
	has(t, logOf(t, db, id), "StepStarted main/sleeps/long#1", "StepCompleted main/sleeps/long#1", "StepCompleted main/sleeps/after#1", "StepCompleted main/last#1", "StepCompleted main#1, RunCompleted")
	sound(t, db)
}

// A worker that was frozen and comes back when its step is another's records nothing, and its code does nothing more.
func TestContract_O14_AFrozenWorkerRecordsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	frozen, goOn := make(chan struct{}), make(chan struct{})
	var after, turns atomic.Int64
	var old *local.Engine
	one := func(ctx context.Context) (string, error) {
		first := turns.Add(1) == 1
		said, err := run.Step(ctx, "a", func(ctx context.Context) (string, error) {
			if first {
				close(frozen)
				<-goOn
				return "the frozen one's", nil
			}
			close(goOn)
			if !pgtest.Wait(pgtest.Patience, func() bool { return old.Stats().Lost > 0 }) {
				t.Error("the frozen one has not ended")
			}
			return "the other's", nil
		})
		if err != nil {
			return "", err
		}
		return run.Step(ctx, "b", func(context.Context) (string, error) {
			after.Add(1)
			return said, nil
		})
	}
	// Its leases are not renewed: nothing of it moves.
	old, _ = serve(t, db, local.Options{Lease: time.Hour, Concurrency: 1, Handlers: []local.Handler{local.Step("code", func(ctx context.Context, _ nothing) (string, error) { return one(ctx) })}})
	id := start(t, db, "a", nil)
	<-frozen
	db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = now() - interval '1 minute'`)
	code(t, db, one)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "what is recorded", outputOf(t, db, id, "main/a"), "the other's")
	want(t, "what came after it", after.Load(), 1)
	has(t, logOf(t, db, id), "StepCompleted main/a#1", "StepCompleted main/b#1", "StepCompleted main#1, RunCompleted")
	want(t, "ends", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log where run_id = $1::text::uuid and event_type = 'StepCompleted'`, id), 3)
	sound(t, db)
}

// What a step's code does wrong with inner steps is said, and nothing is done.
func TestCode_Misuse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code}}}`)
	var do func(ctx context.Context) error
	code(t, db, func(ctx context.Context) (string, error) { return "", do(ctx) })
	for n, test := range []struct {
		code string
		do   func(ctx context.Context) error
	}{
		{"NAME_INVALID", func(ctx context.Context) error { _, err := run.Step(ctx, "a/b", says("")); return err }},
		{"NAME_INVALID", func(ctx context.Context) error { return run.Sleep(ctx, "", time.Hour) }},
		{"STEP_IN_STEP", func(ctx context.Context) error {
			_, err := run.Step(ctx, "a", func(ctx context.Context) (string, error) { return run.Step(ctx, "b", says("")) })
			return err
		}},
		{"OUTPUT_TOO_LARGE", func(ctx context.Context) error {
			_, err := run.Step(ctx, "a", says(strings.Repeat("x", 20_000)))
			return err
		}},
		{"OUTPUT_REFUSED", func(ctx context.Context) error { _, err := run.Step(ctx, "a", says("\x00")); return err }},
		{"OUTPUT_INVALID", func(ctx context.Context) error {
			_, err := run.Step(ctx, "a", func(context.Context) (chan int, error) { return nil, nil })
			return err
		}},
		{"SLEEP_TOO_LONG", func(ctx context.Context) error { return run.Sleep(ctx, "a", 11*365*24*time.Hour) }},
		{"PANIC", func(ctx context.Context) error {
			return run.Parallel(ctx, run.Branch{Name: "a", Do: func(context.Context) error { panic("a test") }})
		}},
		{"PANIC", func(context.Context) error { runtime.Goexit(); return nil }},
	} {
		do = test.do
		id := start(t, db, fmt.Sprint(n), nil)
		want(t, "the run", ended(t, db, id), "FAILED")
		want(t, fmt.Sprint("misuse ", n), errorOf(t, db, id, "main"), test.code)
	}
	if _, err := run.Step(t.Context(), "a", says("")); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("outside of a step: %v", err)
	}
	sound(t, db)
}

// A name that the database could not keep is refused before anything is done under it: it would be done in each attempt, and never recorded.
func TestCode_ANameThatIsNoUTF8(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	var calls atomic.Int64
	code(t, db, func(ctx context.Context) (string, error) {
		return run.Step(ctx, run.Named("item", "caf\xe9"), func(context.Context) (string, error) { calls.Add(1); return "", nil })
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "main"), "NAME_INVALID")
	want(t, "calls", calls.Load(), 0)
	sound(t, db)
}

// A transaction that fails is undone, and its step is tried again; it sees the run's tenant only.
func TestCode_TxThatFails(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	db.Exec(t, pgtest.Owner, `create table public.orders (n int unique deferrable initially deferred); grant all on public.orders to deed_worker; grant usage on schema public to deed_worker`)
	var tenants sync.Map
	code(t, db, func(ctx context.Context) (string, error) {
		return "", run.Tx(ctx, "order", func(ctx context.Context, tx pgx.Tx) error {
			var owner string
			if err := tx.QueryRow(ctx, `select current_setting('app.current_tenant_id')`).Scan(&owner); err != nil {
				return err
			}
			tenants.Store(owner, true)
			if _, err := tx.Exec(ctx, `insert into public.orders values (1)`); err != nil {
				return err
			}
			switch run.Attempt(ctx) {
			case 1:
				return errors.New("no")
			case 2: // refused at the commit
				_, err := tx.Exec(ctx, `insert into public.orders values (1)`)
				return err
			}
			return nil
		})
	})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "orders", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.orders`), 1)
	if _, ok := tenants.Load("00000000-0000-0000-0000-000000000000"); !ok {
		t.Error("the transaction has not set the run's tenant")
	}
	has(t, logOf(t, db, id), "StepFailed main/order#1", "StepFailed main/order#2", "StepCompleted main/order#3")
	sound(t, db)
}

// A branch that ends its goroutine has failed, and nothing goes on as if it had been done.
func TestParallel_GoexitIsAFailure(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code}}}`)
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("code", func(ctx context.Context, _ nothing) (string, error) {
		err := run.Parallel(ctx,
			run.Branch{Name: "ends", Do: func(context.Context) error { runtime.Goexit(); return nil }},
			run.Branch{Name: "returns", Do: func(context.Context) error { return nil }})
		return "done", err
	})}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "main"), "STEP_FAILED")
}
