package local_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Somebody cancels a run and leaves the transaction open: what the engine has in hand of it cannot be recorded, and all
// others' ends are; so they are where an exchange may take as long as it likes.
func TestEngine_ARunThatIsLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}, b: {kind: go, handler: a, after: [a]}}}`)
	locked := start(t, db, "locked", nil)
	begun, goOn := make(chan struct{}), make(chan struct{})
	serve(t, db, local.Options{Deadline: time.Hour, Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
		select {
		case begun <- struct{}{}: // the first
			<-goOn
		default:
		}
		return nil, nil
	})}})
	<-begun
	tx, err := db.Pool(pgtest.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := run.Cancel(t.Context(), tx, locked, audit.Act{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	var others []string
	for i := range 30 {
		others = append(others, start(t, db, fmt.Sprint(i), nil))
	}
	for _, id := range others {
		want(t, "another run", ended(t, db, id), "COMPLETED")
	}
	want(t, "the locked run meanwhile", statusOf(t, db, locked), "RUNNING")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "the locked run", ended(t, db, locked), "COMPLETED")
}

// Nor does what a step publishes beside something that somebody has locked.
func TestEngine_AMessageThatWaitsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	put(t, db, `{plan: q, version: "1", steps: {a: {kind: publish, topic: orders, payload: {n: 1}}}}`)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `lock table deed.publish_keys in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	waiting, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "q", Version: "1", ID: "waits"})
	if err != nil {
		t.Fatal(err)
	}
	waits := waiting.ID
	serve(t, db, local.Options{Deadline: time.Hour, Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil })}})
	for i := range 30 {
		want(t, "another run", ended(t, db, start(t, db, fmt.Sprint(i), nil)), "COMPLETED")
	}
	want(t, "the one that waits meanwhile", statusOf(t, db, waits), "RUNNING")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "it", ended(t, db, waits), "COMPLETED")
	want(t, "its messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where topic = 'orders'`), 1)
}

// Nor does it take the leases of what else is in hand: that is done once, also for longer than the lease of what is locked.
func TestEngine_ARunThatIsLockedTakesNoLeaseAway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	locked, other := start(t, db, "locked", nil), start(t, db, "other", nil)
	var calls atomic.Int64
	goOn := make(chan struct{})
	// It is renewed every four seconds; a machine that is busy with other things may miss one of them.
	opts := local.Options{Deadline: time.Hour, Lease: 12 * time.Second, Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
		calls.Add(1)
		select {
		case <-goOn:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})}}
	serve(t, db, opts)
	eventually(t, "both to be called", func() bool { return calls.Load() == 2 })
	tx, err := db.Pool(pgtest.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := run.Cancel(t.Context(), tx, locked, audit.Act{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	lease := func() (until time.Time) {
		return pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select lease_until from deed.run_steps where run_id = $1::text::uuid`, other)
	}
	renewed := func() {
		t.Helper()
		was := lease()
		eventually(t, "the other's lease to be renewed", func() bool { return lease().After(was) })
	}
	renewed()
	eventually(t, "the locked one's lease to be over", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select lease_until < clock_timestamp() from deed.run_steps where run_id = $1::text::uuid`, locked)
	})
	renewed()
	close(goOn)
	want(t, "the other", ended(t, db, other), "COMPLETED")
	want(t, "calls", calls.Load(), 2)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "the locked run", ended(t, db, locked), "CANCELLED")
}

// An attempt that the engine has cut short, for a lease that could not be renewed while its row was locked, has not failed by that. Where its claim is still
// its own when the lock is gone, nobody knows whether what must not be repeated was done, and a person is asked.
func TestEngine_AnAttemptCutShortForItsLeaseHasNotFailed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, guarantee: at_most_once}}}`)
	var calls, cut atomic.Int64
	serve(t, db, local.Options{Lease: 3 * time.Second, Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
		calls.Add(1)
		<-ctx.Done()
		cut.Add(1)
		return nil, ctx.Err()
	})}})
	id := start(t, db, "a", nil)
	eventually(t, "it to be called", func() bool { return calls.Load() == 1 })
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	// As who cancels the run and undoes it, but that no claim finds the step afterwards: else one may come before the record.
	if _, err := tx.Exec(t.Context(), `update deed.run_steps set queue = 'go:nobody' where claim is not null`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it to be cut short", func() bool { return cut.Load() == 1 })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end, or a person to be asked", func() bool {
		return statusOf(t, db, id) != "RUNNING" || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
	})
	want(t, "the run", statusOf(t, db, id), "RUNNING")
	want(t, "the code", errorOf(t, db, id, "a"), "OUTCOME_UNKNOWN")
	want(t, "calls", calls.Load(), 1)
}

// A step that was given back when it was another's is lost, which the log has once: whether its code says so, or an inner step of it finds out.
func TestEngine_WhatIsGivenBackMayBeLost(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(context.Context) error{
		"its destination was away": func(context.Context) error { return deed.Unavailable(errors.New("no answer"), time.Millisecond) },
		"an inner step": func(ctx context.Context) error {
			_, err := run.Step(ctx, "inner", says("done"))
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
			begun, another := make(chan struct{}), make(chan struct{})
			log := &safeLog{}
			e, stop := serve(t, db, local.Options{Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil)), Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
				close(begun)
				<-another
				return nil, end(ctx)
			})}})
			start(t, db, "a", nil)
			<-begun
			db.Exec(t, pgtest.Owner, `update deed.run_steps set claim = claim + 1000, lease_until = 'infinity'`)
			close(another)
			eventually(t, "it to be counted", func() bool { s := e.Stats(); return s.Lost+s.Released > 0 })
			stop()
			want(t, "lost", e.Stats().Lost, 1)
			want(t, "released", e.Stats().Released, 0)
			want(t, "lines of it", log.count("the step was another's"), 1)
		})
	}
}

// So is a step with an effect in the database that was another's by its end, and nothing is published or reserved for it.
func TestEngine_AnEffectThatIsLost(t *testing.T) {
	t.Parallel()
	for kind, step := range map[string]string{"publish": `topic: orders, payload: 1`, "deliver": `channel: email, provider: mail, to: a@example.com, payload: {subject: Paid}`} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Providers(t, "post", "mail")
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: `+kind+`, `+step+`}}}`)
			id := start(t, db, "a", nil)
			tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			// It is claimed, and cannot be recorded until it is another's.
			if _, err := tx.Exec(t.Context(), `select from deed.runs where run_id = $1::text::uuid for update`, id); err != nil {
				t.Fatal(err)
			}
			log := &safeLog{}
			e, _ := serve(t, db, local.Options{Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
			eventually(t, "it to be claimed", func() bool { return e.Beside().InHand() == 1 })
			if _, err := tx.Exec(t.Context(), `update deed.run_steps set claim = claim + 1000, lease_until = 'infinity'`); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it to be let go", func() bool { return e.Beside().InHand() == 0 })
			want(t, "lost", e.Stats().Lost, 1)
			want(t, "lines of it", log.count("the step was another's"), 1)
			want(t, "effects", pgtest.One[int](t, db.Pool(pgtest.Owner), `select (select count(*) from deed.log where topic = 'orders') + (select count(*) from deed.channel_outbox)`), 0)
		})
	}
}

// A step that must not be repeated is not begun again because its destination was away, unless its code knows that
// nothing was done.
func TestContract_R5_UnavailableMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("not done: ", known), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, guarantee: at_most_once}}}`)
			var calls atomic.Int64
			serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) {
				if calls.Add(1) > 1 {
					return nil, nil
				}
				err := deed.Unavailable(errors.New("no answer"), time.Millisecond)
				if known {
					err = run.NotDone(err)
				}
				return nil, err
			})}})
			id := start(t, db, "a", nil)
			if known {
				want(t, "the run", ended(t, db, id), "COMPLETED")
				want(t, "calls", calls.Load(), 2)
				return
			}
			eventually(t, "a person to be asked", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
			})
			want(t, "the code", errorOf(t, db, id, "a"), "OUTCOME_UNKNOWN")
			want(t, "calls", calls.Load(), 1)
		})
	}
}

// A worker that was frozen until its step was another's comes back: it records nothing, whatever it says, renews nothing and
// begins nothing, and the other's end stands.
func TestContract_O14_AFrozenEngineRecordsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	id := start(t, db, "a", nil)
	worker := db.Pool(pgtest.Worker)
	claim := func() (n int64) {
		return pgtest.One[int64](t, worker, `select claim from deed.claim_steps('{go:a}', 'w', 1)`)
	}
	frozen := claim()
	db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = clock_timestamp() - interval '1 second'`)
	other := claim()
	finish := func(claim int64, outcome string) string {
		return pgtest.One[string](t, worker, `
			select result from deed.finish_steps(array[$1::text::uuid], '{0}', array[$2::bigint], '{a}', '{1}', array[$3::text],
			  array[case $3 when 'failed' then '{"error": {"code": "X"}}' else '{}' end::jsonb], p_again => array[case $3 when 'waiting' then 0 end::float8])`, id, claim, outcome)
	}
	for _, outcome := range []string{"completed", "failed", "skipped", "waiting", "released"} {
		want(t, outcome, finish(frozen, outcome), "lost")
	}
	want(t, "renewed", pgtest.One[int](t, worker, `select count(*) from deed.extend_steps(array[$1::text::uuid], '{0}', array[$2::bigint])`, id, frozen), 0)
	want(t, "begun", pgtest.One[string](t, worker, `select deed.begin_step($1::text::uuid, 0, $2)`, id, frozen), "lost")
	want(t, "the events", logOf(t, db, id), "RunApproved, RunStarted")
	want(t, "the other", finish(other, "completed"), "recorded")
	want(t, "the other, asked again", finish(other, "completed"), "repeated")
	want(t, "the frozen one after it", finish(frozen, "failed"), "lost")
	want(t, "the run", statusOf(t, db, id), "COMPLETED")
}

// A step that kills its worker each time is claimed alone from its second lost claim on, and after ten it has failed and is
// not begun any more (O17); what is due beside it is done.
func TestContract_O17_AStepThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	killer := start(t, db, "killer", nil)
	claim := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select coalesce(string_agg(concat_ws(' ', case when run_id = $1::text::uuid then 'killer' else 'other' end, lost_claims, verdict), ', '), 'none')
			from deed.claim_steps('{go:a}', 'w', 10)`, killer)
	}
	lapse := func() {
		db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = clock_timestamp() - interval '1 second' where run_id = $1::text::uuid`, killer)
	}
	for lost := range 10 {
		want(t, "the claim", claim(), fmt.Sprint("killer ", lost))
		lapse()
		if lost == 1 { // the next claim is its second that comes after a lost one
			other := start(t, db, "other", nil)
			want(t, "beside another", claim(), "killer 2")
			lapse()
			db.Exec(t, pgtest.Owner, `update deed.run_steps set lost_claims = 1, engine_attempt = 2 where run_id = $1::text::uuid`, killer)
			db.Exec(t, pgtest.Admin, `select deed.stop_run($1::text::uuid, 'a test')`, other)
		}
	}
	want(t, "the claim after ten", claim(), "killer 10 WORKER_LOST")
	lapse()
	var calls atomic.Int64
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { calls.Add(1); return nil, nil })}})
	want(t, "the run", ended(t, db, killer), "FAILED")
	want(t, "the code", errorOf(t, db, killer, "a"), "WORKER_LOST")
	want(t, "another run", ended(t, db, start(t, db, "after", nil)), "COMPLETED")
	want(t, "calls", calls.Load(), 1)
}

// That a step has begun which must not be repeated has been flushed before it begins, whatever the session's synchronous_commit is.
func TestBeginStep_FlushesUnderAsynchronousCommit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, guarantee: at_most_once}}}`)
	id := start(t, db, "a", nil)
	claim := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select claim from deed.claim_steps('{go:a}', 'w', 1)`)
	conn := db.Conn(t, pgtest.Worker)
	if _, err := conn.Exec(t.Context(), `set synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	want(t, "why not", pgtest.One[string](t, tx, `select coalesce(deed.begin_step($1::text::uuid, 0, $2), '')`, id, claim), "")
	want(t, "the transaction that begins it commits with synchronous_commit", pgtest.One[string](t, tx, `show synchronous_commit`), "on")
}

// A step that was claimed before its run is paused is not begun, and begins when the run goes on: of one that must not be repeated nothing has begun by then.
func TestBeginStep_OfAPausedRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, guarantee: at_most_once}}}`)
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	becomes := func(id, event string) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `select deed.write_events(array[$1]::text[]::uuid[], array[$2], '{null}', '{1}', p_signals => array[gen_random_uuid()])`, id, event)
	}
	id := start(t, db, "by SQL", nil)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_steps('{go:a}', 'w', 1)`)
	for _, c := range []struct{ event, answer, begun string }{{"RunPaused", "paused", "false"}, {"RunResumed", "may", "true"}, {"RunPaused", "paused", "false"}} {
		becomes(id, c.event)
		want(t, "after "+c.event, pgtest.One[string](t, worker, `select coalesce(deed.begin_step($1::text::uuid, 0, $2), 'may')`, id, claim), c.answer)
		want(t, "whether it has begun, after "+c.event, pgtest.One[string](t, owner, `select (begun_at is not null)::text from deed.run_steps where run_id = $1::text::uuid`, id), c.begun)
	}

	var calls atomic.Int64
	id = start(t, db, "by an engine", nil)
	becomes(id, "RunPaused")
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { calls.Add(1); return nil, nil })}})
	due := func() string {
		return pgtest.One[string](t, owner, `select coalesce(max(process_after) filter (where claim is null)::text, '') from deed.run_steps where run_id = $1::text::uuid`, id)
	}
	first := due()
	eventually(t, "it to be given back", func() bool {
		second := due()
		return second != "" && second != first
	})
	want(t, "calls while it is paused", calls.Load(), 0)
	becomes(id, "RunResumed")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "calls", calls.Load(), 1)
}

// exchanges counts those of a pool.
type exchanges struct{ atomic.Int64 }

func (*exchanges) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*exchanges) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (e *exchanges) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	e.Add(1)
	return ctx
}
func (*exchanges) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*exchanges) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A step whose time has come while somebody keeps its row locked is looked for as others are, and not all the time.
func TestEngine_ALockedStepIsNotAskedForAllTheTime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: sleep, for: 24h}}}`)
	id := start(t, db, "a", nil)
	_, stop := serve(t, db, local.Options{})
	eventually(t, "it to sleep", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where parked)`)
	})
	stop()
	db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = now()`)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from deed.run_steps for update`); err != nil {
		t.Fatal(err)
	}
	cfg, made := db.NewPool(pgtest.Worker, 8).Config(), &exchanges{}
	cfg.ConnConfig.Tracer = made
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	e, err := local.New(t.Context(), pool, local.Options{PollInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	began := time.Now()
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	eventually(t, "it to be looked for", func() bool { return made.Load() >= 12 })
	if took := time.Since(began); took < 400*time.Millisecond { // eleven times 50 ms or more lie between them
		t.Errorf("it was looked for %d times in %s", made.Load(), took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, id), "COMPLETED")
}
