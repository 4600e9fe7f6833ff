package local_test

import (
	"context"
	"errors"
	"fmt"
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

const shipOrder = `
plan: p
version: "1"
params: {from: shop}
steps:
  charge: {kind: go, handler: charge, with: {order: "${input.order}", from: "${params.from}"}}
  tell:   {kind: publish, after: [charge], topic: orders, key: "${input.order}", payload: {paid: "${steps.charge.output.amount}"}}
  mail:   {kind: go, handler: mail, after: [charge], when: "steps.charge.output.amount > 100"}
  wait:   {kind: sleep, for: 20ms, after: [tell]}
  close:  {kind: go, handler: close, after: [wait, mail], needs: done}
`

// A plan of all kinds that the engine does: values go from step to step, a condition skips, a
// message commits with its step's end, and the run's events say what happened.
func TestEngine_DoesAPlan(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, shipOrder)
	var mu sync.Mutex
	seen := map[string]string{}
	type order struct{ Order, From string }
	_, stop := serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("charge", func(ctx context.Context, in order) (map[string]int, error) {
			mu.Lock()
			defer mu.Unlock()
			seen["charge"] = fmt.Sprint(in.Order, " ", in.From, " ", run.Attempt(ctx), " ", len(run.Key(ctx)))
			return map[string]int{"amount": 42}, nil
		}),
		local.Step("mail", func(context.Context, nothing) (nothing, error) { return nil, errors.New("never called") }),
		local.Step("close", func(_ context.Context, in order) (nothing, error) {
			mu.Lock()
			defer mu.Unlock()
			seen["close"] = in.Order // the run's input, since it has no with
			return nil, nil
		}),
	}})
	id := start(t, db, "a", map[string]string{"order": "o7"})
	want(t, "the run", ended(t, db, id), "COMPLETED")
	stop()
	want(t, "charge was given", seen["charge"], "o7 shop 1 64")
	want(t, "close was given", seen["close"], "o7")
	got := logOf(t, db, id)
	has(t, got, "RunApproved, RunStarted, StepStarted charge#1, StepCompleted charge#1", "StepCompleted tell#1", "StepStarted wait#1", "StepCompleted wait#1, ", "StepCompleted close#1, RunCompleted")
	has(t, got, "StepSkipped mail#1", "RunCompleted")
	want(t, "messages", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(concat_ws(' ', key, convert_from(payload, 'UTF8')), ',') from deed.log where topic = 'orders'`), `o7 {"paid":42}`)
	shown, err := run.Show(t.Context(), db.Pool(pgtest.Worker), id, 0)
	if err != nil || len(shown.Snapshot.Steps) != 5 || shown.Snapshot.Steps[2].Status != run.StepSkip {
		t.Errorf("%+v, %v", shown.Snapshot, err)
	}
}

// A request that is repeated makes one run, which begins once; what is rolled back was never asked for (R12).
func TestContract_R12_ARunStartsOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	var calls atomic.Int64
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) {
		calls.Add(1)
		return nil, nil
	})}})
	undone := errors.New("undone")
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if _, err := run.Start(t.Context(), tx, run.Request{Plan: "p", Version: "1", ID: "a"}); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: "a"})
			if err != nil {
				t.Error(err)
			}
			ids[i] = s.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		want(t, "the run", id, ids[0])
	}
	want(t, "its end", ended(t, db, ids[0]), "COMPLETED")
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 1)
	want(t, "calls", calls.Load(), 1)
	if _, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "2", ID: "a"}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("a version that is not stored: %v", err)
	}
}

// The logical attempt moves on by the plan's policy, and the key of effects only where it is known that nothing was
// done under it (R5): a time-out that is repeated under another key would be done twice, whatever was refused in between.
func TestContract_R5_TheKeyStaysWhileItMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, retry: {attempts: 4, backoff: 1ms}}}}`)
	var mu sync.Mutex
	var keys []string
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, run.Key(ctx))
		switch run.Attempt(ctx) {
		case 2:
			return nil, errors.New("timed out")
		case 1, 3:
			return nil, run.NotDone(errors.New("refused"))
		}
		return nil, nil
	})}})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "events", logOf(t, db, id), "RunApproved, RunStarted, StepStarted a#1, StepFailed a#1, StepStarted a#2, StepFailed a#2, StepStarted a#3, StepFailed a#3, StepStarted a#4, StepCompleted a#4, RunCompleted")
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 4 || keys[0] == keys[1] || keys[1] != keys[2] || keys[2] != keys[3] {
		t.Errorf("keys: %v", keys)
	}
}

// What a step may come to that is no plain success: how it is told, and whether it is tried again.
func TestEngine_Outcomes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, step, code, status string
		attempts                 int
		do                       func(ctx context.Context, in nothing) (any, error)
	}{
		{"fails", "", "STEP_FAILED", "FAILED", 2, func(context.Context, nothing) (any, error) { return nil, errors.New("no") }},
		{"its own code", "", "CARD", "FAILED", 2, func(context.Context, nothing) (any, error) { return nil, fail("CARD") }},
		{"permanent", "", "STEP_FAILED", "FAILED", 1, func(context.Context, nothing) (any, error) { return nil, deed.Permanent(errors.New("no")) }},
		{"panics", "", "PANIC", "FAILED", 2, func(context.Context, nothing) (any, error) { panic("x") }},
		{"too slow", "timeout: 10ms, ", "TIMEOUT", "FAILED", 2, func(ctx context.Context, _ nothing) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{"skips itself", "", "", "COMPLETED", 1, func(context.Context, nothing) (any, error) { return nil, run.Skip("nothing to do") }},
		{"returns too much", "", "OUTPUT_TOO_LARGE", "FAILED", 1, func(context.Context, nothing) (any, error) { return strings.Repeat("x", 20_000), nil }},
		{"what the database cannot keep", "", "OUTPUT_REFUSED", "FAILED", 1, func(context.Context, nothing) (any, error) { return "a\x00b", nil }},
		{"a condition that cannot be computed", `when: "input.missing > 1", `, "CONDITION_ERROR", "FAILED", 1, nil},
		{"a destination that is away for a while", "", "", "COMPLETED", 1, func() func(context.Context, nothing) (any, error) {
			var calls atomic.Int64
			return func(context.Context, nothing) (any, error) {
				if calls.Add(1) < 3 {
					return nil, deed.Unavailable(errors.New("away"), time.Millisecond)
				}
				return nil, nil
			}
		}()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, `+test.step+`retry: {attempts: 2, backoff: 1ms}}, b: {kind: sleep, for: 1ms}}}`)
			serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", test.do)}})
			id := start(t, db, "a", nil)
			want(t, "the run", ended(t, db, id), test.status)
			want(t, "the code", errorOf(t, db, id, "a"), test.code)
			want(t, "logical attempts", pgtest.One[int](t, db.Pool(pgtest.Owner), `select max(logical_attempt) from deed.run_log where step_id = 'a'`), test.attempts)
			has(t, logOf(t, db, id), "StepCompleted b#1") // none holds up another
		})
	}
}

// A message of a step is published with the end of it, or the step has failed and nothing was.
func TestEngine_PublishIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `
plan: p
version: "1"
steps:
  good: {kind: publish, topic: orders, payload: {n: 1}}
  bad:  {kind: publish, topic: orders, payload: {n: 2}, headers: {"deed-x": "reserved"}}
`)
	serve(t, db, local.Options{})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "the code", errorOf(t, db, id, "bad"), "PUBLISH_REFUSED")
	has(t, logOf(t, db, id), "StepCompleted good#1")
	want(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where topic = 'orders'`), 1)
}

// A step that runs for a while is told of while it runs, and once.
func TestEngine_LongStepsAreAnnounced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	release := make(chan struct{})
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) {
		<-release
		return nil, nil
	})}})
	id := start(t, db, "a", nil)
	eventually(t, "the start to be told of", func() bool { return strings.Contains(logOf(t, db, id), "StepStarted a#1") })
	close(release)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "events", logOf(t, db, id), "RunApproved, RunStarted, StepStarted a#1, StepCompleted a#1, RunCompleted")
}

// However long the plan's back-off is, and however often it has doubled, the next attempt is due within a day.
func TestEngine_BackoffIsADayAtMost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, retry: {attempts: 60, backoff: 24h}}}}`)
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, fail("BROKEN") })}})
	id := start(t, db, "a", nil)
	next := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce((select concat_ws(' ', attempt, process_after between now() + interval '23 hours' and now() + interval '24 hours') from deed.run_steps where claim is null and not ready), '')`)
	}
	eventually(t, "29 attempts to have failed, or the run", func() bool {
		db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = clock_timestamp() where claim is null and not ready and attempt < 30`)
		return next() == "30 t" || statusOf(t, db, id) != "RUNNING"
	})
	want(t, "why the last one has failed", errorOf(t, db, id, "a"), "BROKEN")
	want(t, "the next one", next(), "30 t")
}

// With a hold a run whose step has failed waits for a person, who has it tried again or cancels; the others of its
// steps go on.
func TestEngine_AHeldRunWaitsForAPerson(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {a: {kind: go, handler: a}, b: {kind: go, handler: b, after: [a], needs: done}, c: {kind: sleep, for: 1ms}}}`)
	var mended atomic.Bool
	var keys sync.Map
	serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("a", func(ctx context.Context, in map[string]string) (nothing, error) {
			keys.Store(fmt.Sprint(in["run"], run.Attempt(ctx)), run.Key(ctx))
			if !mended.Load() {
				return nil, fail("BROKEN")
			}
			return nil, nil
		}),
		local.Step("b", func(context.Context, nothing) (nothing, error) { return nil, nil }),
	}})
	admin := db.Pool(pgtest.Admin)
	why := audit.Act{By: "ann", Reason: "mended"}
	held := func(id string) func() bool {
		return func() bool {
			return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where run_id = $1::text::uuid and verdict = 'HOLD_OVER'`, id) == 1 &&
				strings.Contains(logOf(t, db, id), "StepCompleted c#1")
		}
	}
	one, two := start(t, db, "one", map[string]string{"run": "one"}), start(t, db, "two", map[string]string{"run": "two"})
	eventually(t, "the runs to be held", func() bool { return held(one)() && held(two)() })
	want(t, "a run that is held", statusOf(t, db, one), "RUNNING")
	if strings.Contains(logOf(t, db, one), "b#") {
		t.Error("a step has begun after one that waits for a person")
	}
	mended.Store(true)
	if n, err := run.RetryStep(t.Context(), admin, one, "a", false, why); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	want(t, "the one that was tried again", ended(t, db, one), "COMPLETED")
	first, _ := keys.Load("one1")
	second, _ := keys.Load("one2")
	other, _ := keys.Load("two1")
	if first == nil || first != second || first == other { // it is not done anew, and is no other run's
		t.Errorf("the first attempt had the key %v, the second one %v, the other run's %v", first, second, other)
	}
	if _, err := run.RetryStep(t.Context(), admin, one, "a", false, why); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("again: %v", err)
	}
	for _, first := range []bool{true, false} {
		if did, err := run.Cancel(t.Context(), admin, two, why); err != nil || did != first {
			t.Error(did, err)
		}
	}
	want(t, "the one that was cancelled", statusOf(t, db, two), "CANCELLED")
	if _, err := run.Cancel(t.Context(), admin, one, why); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("what has ended: %v", err)
	}
	want(t, "the audit log", pgtest.One[string](t, admin, `select string_agg(action || ' ' || actor, ',' order by n) from deed.audit_log where subject_type = 'run'`), "retry ann,cancel ann")
}

// A hold that nobody ends is over in time: the step has failed for good, and the run goes on from there.
func TestEngine_AHoldIsOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {a: {kind: go, handler: a}, b: {kind: sleep, for: 1ms, after: [a], needs: done}, c: {kind: sleep, for: 1ms, after: [a]}}}`)
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, fail("BROKEN") })}})
	id := start(t, db, "a", nil)
	eventually(t, "the run to be held", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where verdict = 'HOLD_OVER'`) == 1
	})
	db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = clock_timestamp()`)
	want(t, "the run", ended(t, db, id), "FAILED")
	has(t, logOf(t, db, id), "StepFailed a#1, StepSkipped c#1", "StepCompleted b#1, RunFailed")
}

// A plan that wants a person's approval begins by it.
func TestEngine_Approval(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", approval: person, steps: {a: {kind: sleep, for: 1ms}}}`)
	id := start(t, db, "a", nil)
	want(t, "before", statusOf(t, db, id), "PENDING")
	serve(t, db, local.Options{})
	if err := run.Approve(t.Context(), db.Pool(pgtest.Admin), id, audit.Act{By: "ann"}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("without a reason: %v", err)
	}
	if err := run.Approve(t.Context(), db.Pool(pgtest.Admin), id, audit.Act{By: "ann", Reason: "looks good"}); err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, id), "COMPLETED")
	if err := run.Approve(t.Context(), db.Pool(pgtest.Admin), id, audit.Act{By: "ann", Reason: "again"}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("again: %v", err)
	}
}

// A stop gives back what it cuts short, and another engine begins it again, in the same logical attempt.
func TestContract_R5_AStopIsNoLogicalAttempt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	began := make(chan struct{}, 1)
	_, stop := serve(t, db, local.Options{Grace: time.Millisecond, Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})}})
	id := start(t, db, "a", nil)
	<-began
	stop()
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil })}})
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "attempts", pgtest.One[string](t, db.Pool(pgtest.Owner), `select logical_attempt || ' ' || engine_attempt from deed.run_log where event_type = 'StepCompleted'`), "1 2")
}

// Options that are out of range are refused, all at once.
func TestNew_Err(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil })
	_, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{Concurrency: -1, Lease: time.Millisecond, Handlers: []local.Handler{h, h}})
	if deed.CodeOf(err) != deed.Invalid {
		t.Error(err)
	}
	has(t, fmt.Sprint(err), "Lease", "Concurrency", `handler "a"`)
}

// Run says so when it is called again.
func TestEngine_RunsOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	e, stop := serve(t, db, local.Options{})
	stop()
	if err := e.Run(t.Context()); err == nil {
		t.Error("it runs again")
	}
}

// A plan that is not what was stored is none that a person could have carried out: with a hold, too, the run fails, and both hashes are in the audit log.
func TestEngine_APlanThatWasDamagedFailsItsRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {a: {kind: sleep, for: 1ms}, b: {kind: sleep, for: 1ms, after: [a]}}}`)
	id := start(t, db, "a", nil)
	db.Exec(t, pgtest.Owner, `update deed.plans set body = replace(convert_from(body, 'UTF8'), '1ms', '2ms')::bytea`)
	serve(t, db, local.Options{})
	eventually(t, "the step to have failed", func() bool { return errorOf(t, db, id, "a") != "" })
	want(t, "steps that wait for a person", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where verdict = 'HOLD_OVER'`), 0)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "a"), "PLAN_INTEGRITY_VALIDATION_FAILED")
	has(t, logOf(t, db, id), "StepFailed a#1, StepSkipped b#1, RunFailed")
	want(t, "both hashes in the audit log", pgtest.One[bool](t, db.Pool(pgtest.Admin), `
		select bool_and(details ->> 'found' <> details ->> 'expected') from deed.audit_log where reason = 'PLAN_INTEGRITY_VALIDATION_FAILED' and subject_id = 'p@1'`), true)
}
