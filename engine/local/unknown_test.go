package local_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// Of code that must not be repeated, and was cut short by a time-out or a panic, nobody knows what it has done: a person is asked, and nobody
// of what it knows itself (R5).
func TestContract_R5_APersonIsAskedAboutCodeThatWasCutShort(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	inTime := func(ctx context.Context, do func(context.Context) error) error {
		bounded, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		return do(bounded)
	}
	branch := func(name string, do func(context.Context) error) run.Branch { return run.Branch{Name: name, Do: do} }
	declines := func(context.Context) error { return fail("DECLINED") }
	for name, c := range map[string]struct {
		timeout      string
		do           func(ctx context.Context) error
		status, code string
		calls        int64
	}{
		"its time is over":                      {"300ms", slow, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"its time is over, in words of its own": {"300ms", func(ctx context.Context) error { <-ctx.Done(); return errors.New("cut") }, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"a call's time is over":                 {"1m", func(ctx context.Context) error { return inTime(ctx, slow) }, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"a code of its own":                     {"1m", func(context.Context) error { return fail("TIMEOUT") }, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"it panics":                             {"1m", func(context.Context) error { panic("a test") }, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"it ends its goroutine":                 {"1m", func(context.Context) error { runtime.Goexit(); return nil }, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"a branch ends its goroutine": {"1m", func(ctx context.Context) error {
			return run.Parallel(ctx, branch("a", func(context.Context) error { runtime.Goexit(); return nil }))
		}, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"an inner step's time is over": {"1m", func(ctx context.Context) error {
			return never(ctx, "pay", func(ctx context.Context) error { return inTime(ctx, slow) })
		}, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"an inner step's time is over, and it says that nothing was done": {"1m", func(ctx context.Context) error {
			return run.NotDone(never(ctx, "pay", func(ctx context.Context) error { return inTime(ctx, slow) }))
		}, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"the time of one of its branches is over": {"1m", func(ctx context.Context) error {
			return run.Parallel(ctx, branch("a", declines), branch("b", func(ctx context.Context) error { return inTime(ctx, slow) }))
		}, "RUNNING", "OUTCOME_UNKNOWN", 1},
		"the time of a branch that has done nothing is over": {"1m", func(ctx context.Context) error {
			return run.Parallel(ctx, branch("a", declines), branch("b", func(ctx context.Context) error { return run.NotDone(inTime(ctx, slow)) }))
		}, "FAILED", "DECLINED", 1},
		"its time is over, and nothing was done": {"300ms", func(ctx context.Context) error { return run.NotDone(slow(ctx)) }, "FAILED", "TIMEOUT", 2},
		"it has failed":                          {"1m", func(context.Context) error { return errors.New("no") }, "FAILED", "STEP_FAILED", 1},
		"it has failed, past its time":           {"300ms", func(ctx context.Context) error { <-ctx.Done(); return fail("DECLINED") }, "FAILED", "DECLINED", 1},
		"it has looked what came of a call whose time was over": {"1m", func(ctx context.Context) error {
			return &run.Failure{Category: "user", Code: "DECLINED", Final: true, Err: fmt.Errorf("looked up after %w: declined", inTime(ctx, slow))}
		}, "FAILED", "DECLINED", 1},
		"it looks after an inner step": {"1m", func(ctx context.Context) error {
			if err := never(ctx, "pay", func(ctx context.Context) error { return inTime(ctx, slow) }); err == nil {
				return errors.New("the inner step has not failed")
			}
			return fail("UNPAID")
		}, "FAILED", "UNPAID", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, timeout: `+c.timeout+`, guarantee: at_most_once, retry: {attempts: 2, backoff: 1ms}}}}`)
			var calls atomic.Int64
			serve(t, db, local.Options{Handlers: []local.Handler{local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
				calls.Add(1)
				return nil, c.do(ctx)
			})}})
			id := start(t, db, "r", nil)
			eventually(t, "a person to be asked, or the run to end", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
			})
			want(t, "what it came to", fmt.Sprint(statusOf(t, db, id), " ", errorOf(t, db, id, "main"), " ", calls.Load()), fmt.Sprint(c.status, " ", c.code, " ", c.calls))
			sound(t, db)
		})
	}
}

// Of code that was not called nobody needs to be asked.
func TestEngine_APanicBeforeItsCode(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once, secrets: {key: "secret://psp"}}}}`)
	serve(t, db, local.Options{
		Secrets: panics{},
		Handlers: []local.Handler{local.Step("code", func(context.Context, nothing) (nothing, error) {
			t.Error("it was called")
			return nil, nil
		})},
	})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "main"), "PANIC")
}

// Nor is it forgotten that code was cut short where its panic tells a secret, which is stored nowhere (R5, R9).
func TestEngine_APanicThatTellsASecretOfWhatMustNotBeRepeated(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once, secrets: {key: "secret://psp"}}}}`)
	serve(t, db, local.Options{
		Secrets:  vault{"secret://psp": "hunter22"},
		Handlers: []local.Handler{local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) { panic(run.Secret(ctx, "key")) })},
	})
	id := start(t, db, "r", nil)
	eventually(t, "it to end, or a person to be asked", func() bool { return errorOf(t, db, id, "main") != "" })
	want(t, "what it came to", statusOf(t, db, id)+" "+errorOf(t, db, id, "main"), "RUNNING OUTCOME_UNKNOWN")
	want(t, "what tells the secret", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log where event_data::text like '%hunter22%'`), 0)
}

// Nor where what it says past its time tells one: that it was cut short is no less so.
func TestEngine_ASecretThatIsToldPastItsTime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, timeout: 300ms, guarantee: at_most_once, secrets: {key: "secret://psp"}}}}`)
	serve(t, db, local.Options{
		Secrets: vault{"secret://psp": "hunter&22"},
		Handlers: []local.Handler{local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
			<-ctx.Done()
			return nil, errors.New("no answer to https://psp.example/?key=" + url.QueryEscape(run.Secret(ctx, "key")))
		})},
	})
	id := start(t, db, "r", nil)
	eventually(t, "it to end, or a person to be asked", func() bool { return errorOf(t, db, id, "main") != "" })
	want(t, "what it came to", statusOf(t, db, id)+" "+errorOf(t, db, id, "main"), "RUNNING OUTCOME_UNKNOWN")
	want(t, "what tells the secret", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log where event_data::text like '%hunter%'`), 0)
}

// panics resolves nothing.
type panics struct{}

func (panics) Resolve(context.Context, []string, tenant.ID, string) (map[string]string, error) {
	panic("a test")
}

// What must not be repeated, and has slept, has begun before that, and not under each claim of it since: one that is lost under which nothing was
// begun costs no more than of what has never begun (R5).
func TestContract_R5_AClaimOfASleeperThatHasBegunNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after string // the claim
		want  string
	}{
		"it is lost":                {"", "COMPLETED"},
		"it has begun, and is lost": {`select deed.begin_step(run_id, 0, claim) from deed.run_steps`, "RUNNINGOUTCOME_UNKNOWN"},
		"its run was paused, and it is lost": {`
			select deed.write_events(array_agg(run_id), '{RunPaused}', '{null}', '{1}', p_signals => array[gen_random_uuid()]) from deed.run_steps;
			select deed.begin_step(run_id, 0, claim) from deed.run_steps;
			select deed.write_events(array_agg(run_id), '{RunResumed}', '{null}', '{1}', p_signals => array[gen_random_uuid()]) from deed.run_steps`, "COMPLETED"},
		"it is given back": {`select deed.finish_steps(array_agg(run_id), '{0}', array_agg(claim), '{main}', '{1}', '{released}') from deed.run_steps`, "COMPLETED"},
		"it has begun, and is given back": {`
			select deed.begin_step(run_id, 0, claim) from deed.run_steps;
			select deed.finish_steps(array_agg(run_id), '{0}', array_agg(claim), '{main}', '{1}', '{released}') from deed.run_steps`, "RUNNINGOUTCOME_UNKNOWN"},
		"it has begun, was not done, and is lost when it is claimed again": {`
			select deed.begin_step(run_id, 0, claim) from deed.run_steps;
			select deed.finish_steps(array_agg(run_id), '{0}', array_agg(claim), '{main}', '{1}', '{released}', p_not_done => '{true}') from deed.run_steps;
			select from deed.claim_steps('{go:code}', 'w', 1)`, "COMPLETED"},
		"it has begun before it was known under which claim": {`
			select deed.begin_step(run_id, 0, claim) from deed.run_steps;
			update deed.run_steps set begun_claim = null`, "RUNNINGOUTCOME_UNKNOWN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner := db.Pool(pgtest.Owner)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, guarantee: at_most_once}}}`)
			claims := func() int {
				return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_steps('{go:code}', 'w', 1)`)
			}
			id := start(t, db, "r", nil)
			want(t, "claims", claims(), 1)
			for _, sql := range []string{
				`select deed.begin_step(run_id, 0, claim) from deed.run_steps`,
				`select deed.record_steps(array_agg(run_id), '{0}', array_agg(claim), '{main/nap}', '{1}', '{waiting}', p_again => '{0.001}') from deed.run_steps`,
				`select deed.finish_steps(array_agg(run_id), '{0}', array_agg(claim), '{main}', '{1}', '{waiting}', p_again => '{0.001}') from deed.run_steps`,
			} {
				db.Exec(t, pgtest.Owner, sql)
			}
			eventually(t, "the time to come", func() bool { return claims() == 1 })
			for _, sql := range strings.Split(c.after, ";\n") {
				db.Exec(t, pgtest.Owner, sql)
			}
			db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = clock_timestamp() where claim is not null`)
			serve(t, db, local.Options{Handlers: []local.Handler{local.Step("code", func(ctx context.Context, _ nothing) (nothing, error) {
				return nil, run.Sleep(ctx, "nap", time.Hour)
			})}})
			eventually(t, "it to end, or a person to be asked", func() bool {
				return pgtest.One[bool](t, owner, `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
			})
			want(t, "what it came to", statusOf(t, db, id)+errorOf(t, db, id, "main"), c.want)
		})
	}
}
