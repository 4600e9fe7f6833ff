package local_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// come waits for what closes came.
func come(t testing.TB, what string, came <-chan struct{}) {
	t.Helper()
	select {
	case <-came:
	case <-time.After(pgtest.Patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// never is an inner step that returns nothing of use.
func never(ctx context.Context, name string, do func(context.Context) error) error {
	_, err := run.Step(ctx, name, func(ctx context.Context) (nothing, error) { return nil, do(ctx) })
	return err
}

// A branch that was certainly not done does not speak for one beside it that a stop has cut short: where a step must not be repeated a
// person is asked (R5).
func TestContract_R5_ABranchThatWasCutShortIsNotForgotten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
	var charged atomic.Int64
	charging, gaveUp := make(chan struct{}), make(chan struct{})
	opts := local.Options{Grace: 50 * time.Millisecond, Handlers: []local.Handler{
		local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
			return nil, run.Parallel(ctx,
				run.Branch{Name: "money", Do: func(ctx context.Context) error {
					return never(ctx, "charge", func(ctx context.Context) error {
						if charged.Add(1) == 1 {
							close(charging)
							<-ctx.Done() // the other end may have taken it
							return context.Cause(ctx)
						}
						return nil
					})
				}},
				run.Branch{Name: "goods", Do: func(ctx context.Context) error {
					<-charging
					err := never(ctx, "stock", func(context.Context) error {
						return run.NotDone(deed.Unavailable(errors.New("it is away"), time.Millisecond))
					})
					select {
					case <-gaveUp:
					default:
						close(gaveUp)
					}
					return err
				}})
		}),
	}}
	_, stop := serve(t, db, opts)
	id := start(t, db, "r", nil)
	come(t, "the goods to be given up", gaveUp)
	stop()
	serve(t, db, opts)
	eventually(t, "a person to be asked, or the run to end", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
	})
	want(t, "what nobody knows", errorOf(t, db, id, "main"), "OUTCOME_UNKNOWN")
	want(t, "charges", charged.Load(), 1)
}

// What branches come to together: one that was skipped hides no failure, and one that was not done says nothing of the others (R5).
func TestContract_R5_BranchesFailTogether(t *testing.T) {
	t.Parallel()
	away, goexits := run.NotDone(deed.Unavailable(errors.New("away"), time.Millisecond)), errors.New("it ends its goroutine")
	for name, c := range map[string]struct {
		first, second error
		status, code  string
		calls         int64
		inner         bool // the first is of an inner step
	}{
		"skipped and failed":                     {run.Skip("not needed"), errors.New("it broke"), "FAILED", "STEP_FAILED", 1, false},
		"skipped and done":                       {run.Skip("not needed"), nil, "COMPLETED", "", 1, false},
		"not done and perhaps done":              {run.NotDone(errors.New("no")), errors.New("it was cut"), "FAILED", "STEP_FAILED", 1, false},
		"away and perhaps done":                  {away, errors.New("it was cut"), "", "OUTCOME_UNKNOWN", 1, false},
		"away, an inner step, and perhaps done":  {away, errors.New("it was cut"), "", "OUTCOME_UNKNOWN", 1, true},
		"away, an inner step, and one that ends": {away, goexits, "", "OUTCOME_UNKNOWN", 1, true},
		"none of the two was done":               {run.NotDone(errors.New("no")), run.NotDone(errors.New("no")), "FAILED", "STEP_FAILED", 2, false},
		"failed, behind one skipped":             {errors.New("it broke"), run.Skip("not needed"), "FAILED", "STEP_FAILED", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once, retry: {attempts: 2, backoff: 1ms}}}}`)
			var calls atomic.Int64
			serve(t, db, local.Options{Handlers: []local.Handler{
				local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
					return nil, run.Parallel(ctx,
						run.Branch{Name: "a", Do: func(ctx context.Context) error {
							if c.inner {
								return never(ctx, "stock", func(context.Context) error { return c.first })
							}
							return c.first
						}},
						run.Branch{Name: "b", Do: func(context.Context) error {
							calls.Add(1)
							if errors.Is(c.second, goexits) {
								runtime.Goexit()
							}
							return c.second
						}})
				}),
			}})
			id := start(t, db, "r", nil)
			if c.status == "" {
				eventually(t, "a person to be asked", func() bool {
					return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
				})
			} else {
				want(t, "the run", ended(t, db, id), c.status)
			}
			want(t, "why", errorOf(t, db, id, "main"), c.code)
			want(t, "calls", calls.Load(), c.calls)
		})
	}
}

// What code has made of its branches' failures is its own: it says itself then whether anything was done (R5).
func TestContract_R5_BranchesThatWereLookedAfter(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"by an inner step": fail("DECLINED"), "by a branch": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
			var turns, calls atomic.Int64
			serve(t, db, local.Options{Handlers: []local.Handler{
				local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
					err := run.Parallel(ctx, run.Branch{Name: "a", Do: func(ctx context.Context) error {
						if failure == nil {
							return errors.New("it is none")
						}
						return never(ctx, "pay", func(context.Context) error { calls.Add(1); return failure })
					}})
					if err == nil {
						t.Error("the branch has not failed")
					}
					if turns.Add(1) == 1 {
						return nil, run.NotDone(deed.Unavailable(errors.New("away"), time.Millisecond))
					}
					return nil, nil
				}),
			}})
			want(t, "the run", ended(t, db, start(t, db, "r", nil)), "COMPLETED")
			want(t, "turns", turns.Load(), 2)
			want(t, "calls at most", calls.Load() > 1, false)
		})
	}
}

// An inner step that was not done, as what it calls is away, says so of itself: where its code passes that up the step is begun anew, and where the code has swallowed
// it nobody knows what that has done beside it (R5).
func TestContract_R5_AnInnerStepSpeaksForItself(t *testing.T) {
	t.Parallel()
	for name, swallows := range map[string]bool{"passed up": false, "swallowed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
			var turns atomic.Int64
			serve(t, db, local.Options{Handlers: []local.Handler{
				local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
					turn := turns.Add(1)
					err := never(ctx, "stock", func(context.Context) error {
						if turn == 1 {
							return run.NotDone(deed.Unavailable(errors.New("away"), time.Millisecond))
						}
						return nil
					})
					if swallows {
						return nil, nil // what it has done itself is done again where it is begun anew
					}
					return nil, err
				}),
			}})
			id := start(t, db, "r", nil)
			eventually(t, "the run to end, or a person to be asked", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
			})
			want(t, "what it came to", statusOf(t, db, id)+errorOf(t, db, id, "main"), map[bool]string{false: "COMPLETED", true: "RUNNINGOUTCOME_UNKNOWN"}[swallows])
			want(t, "turns", turns.Load(), map[bool]int64{false: 2, true: 1}[swallows])
		})
	}
}

// A failure after which the code went on to other branches stands, as before another step: who was paid back is not charged again (R5).
func TestContract_R5_AFailureStandsBeforeOtherBranches(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, retry: {attempts: 2, backoff: 1ms}}}}`)
	var turns, charged, refunded atomic.Int64
	serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
			turns.Add(1)
			branch := func(name string, do func() error) run.Branch {
				return run.Branch{Name: name, Do: func(ctx context.Context) error {
					return never(ctx, "do", func(context.Context) error { return do() })
				}}
			}
			err := run.Parallel(ctx,
				branch("charge", func() error {
					if charged.Add(1) == 1 {
						return fail("DECLINED")
					}
					return nil
				}),
				branch("reserve", func() error { return nil }))
			if err == nil {
				return nil, nil
			}
			if back := run.Parallel(ctx, branch("refund", func() error { refunded.Add(1); return nil }), branch("release", func() error { return nil })); back != nil {
				return nil, back
			}
			return nil, err
		}),
	}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "main"), "DECLINED")
	want(t, "turns, charges and refunds", [3]int64{turns.Load(), charged.Load(), refunded.Load()}, [3]int64{2, 1, 1})
}

// No inner step begins under a claim that was not renewed in time and is another's by now, as after the process was frozen between two.
func TestContract_R5_NoInnerStepBeginsUnderALostClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
	between, goOn, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var charged atomic.Int64
	serve(t, db, local.Options{Lease: 10 * time.Second, Handlers: []local.Handler{
		local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
			if err := never(ctx, "first", func(context.Context) error { return nil }); err != nil {
				return nil, err
			}
			close(between)
			<-goOn
			defer close(returned)
			return nil, never(ctx, "charge", func(context.Context) error { charged.Add(1); return nil })
		}),
	}})
	start(t, db, "r", nil)
	come(t, "what is between the two", between)
	// Somebody else has it; the renewals of who had it wait for that until it is too late for them.
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `lock table deed.run_steps in exclusive mode`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update deed.run_steps set claim = claim + 1, claimed_by = 'another', lease_until = clock_timestamp() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * time.Second) // more than two thirds of the lease: it has to be asked for
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	come(t, "the end of the code", returned)
	want(t, "charges", charged.Load(), 0)
}
