package local_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// byHand is an event of a step that a worker appends behind the engine's back.
func byHand(id string, typ run.Type, step string, attempt int) run.New {
	e := run.New{Run: id, Type: typ, Step: step, Attempt: attempt}
	if typ == run.StepCompleted || typ == run.StepFailed {
		e.Data = []byte(`{"started_at": "2026-01-02T03:04:05Z"}`)
	}
	return e
}

// What a step of a plan has come to the engine says that has the run, and nobody beside it: an end that a worker has appended by
// hand, where the engine comes to another one, would be in the way of that for ever. What is beside the plan's steps is taken.
func TestContract_R5_OnlyTheEngineEndsAPlansStep(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {
		a: {kind: go, handler: a, retry: {attempts: 2, backoff: 1ms}},
		b: {kind: publish, topic: orders, payload: 1, after: [a]},
		c: {kind: go, handler: c, after: [b], when: "false"}}}`)
	var calls atomic.Int64
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("a", func(context.Context, nothing) (nothing, error) {
			begun <- struct{}{}
			<-goOn
			if calls.Add(1) == 1 {
				return nil, errors.New("the first time")
			}
			return nil, nil
		}),
		local.Step("c", func(context.Context, nothing) (nothing, error) { return nil, nil }),
	}})
	id := start(t, db, "r", nil)
	<-begun
	worker := db.Pool(pgtest.Worker)
	for _, e := range []run.New{
		byHand(id, run.StepCompleted, "a", 1), byHand(id, run.StepSkipped, "a", 1), byHand(id, run.StepFailed, "b", 1), byHand(id, run.StepCompleted, "c", 1),
		byHand(id, run.StepStarted, "c", 1), byHand(id, run.StepCompleted, "a/inner", 1), byHand(id, run.StepStarted, "a/branch/nap", 1),
	} {
		for _, list := range [][]run.New{{e}, {byHand(id, run.StepCompleted, "beside", 1), e}} {
			if _, err := run.Append(t.Context(), worker, "test/1", list...); deed.CodeOf(err) != deed.Conflict {
				t.Errorf("%s %s#%d, the last of %d: %v", e.Type, e.Step, e.Attempt, len(list), err)
			}
		}
	}
	for _, e := range []run.New{byHand(id, run.StepCompleted, "part 1 of a", 1), byHand(id, run.StepFailed, "b/1", 1), byHand(id, run.StepSkipped, "d/1", 1)} {
		if got, err := run.Append(t.Context(), worker, "test/1", e); err != nil || got[0].Repeated {
			t.Errorf("%s %s, beside the plan's steps: %+v, %v", e.Type, e.Step, got, err)
		}
	}
	close(goOn)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	has(t, logOf(t, db, id), "StepFailed a#1", "StepCompleted a#2", "StepCompleted b#1", "StepSkipped c#1", "RunCompleted")
	want(t, "what verify finds", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.verify()`), 0)

	// What is there already is a repeat, as of any event (R3).
	got, err := run.Append(t.Context(), worker, "test/1", byHand(id, run.StepCompleted, "a", 2))
	if err != nil || !got[0].Repeated {
		t.Errorf("an end that the engine has recorded: %+v, %v", got, err)
	}
}

// A run that deed's engine has not begun is another engine's, which appends what the steps have come to, also those of a stored plan (R15).
func TestContract_R15_AnotherEngineAppendsItsSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	id := pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select c.run_id::text from deed.plans p cross join lateral deed.create_run('p', '1', 'r', p_plan_sha256 => p.sha256, p_engine => 'another') c`)
	db.Exec(t, pgtest.Owner, `select deed.write_events(array[$1, $1]::text[]::uuid[], '{RunApproved,RunStarted}', '{null,null}', '{1,1}')`, id)
	got, err := run.Append(t.Context(), db.Pool(pgtest.Worker), "another/1", byHand(id, run.StepStarted, "a", 1), byHand(id, run.StepCompleted, "a", 1))
	if err != nil || got[1].Repeated {
		t.Errorf("%+v, %v", got, err)
	}
}

// A worker appends while the run begins, in a transaction that has not ended: it waits for that, and is refused then.
func TestContract_R5_AnEndAppendedWhileTheRunBegins(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", approval: person, steps: {a: {kind: go, handler: a}}}`)
	id := start(t, db, "r", nil)
	tx, err := db.Pool(pgtest.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select deed.approve_run($1::text::uuid, 'a test')`, id); err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 2)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		go func() {
			answers <- pgx.BeginTxFunc(t.Context(), db.Pool(pgtest.Worker), pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, err := run.Append(t.Context(), tx, "test/1", byHand(id, run.StepCompleted, "a", 1))
				return err
			})
		}()
	}
	eventually(t, "both to wait", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%append_events%'`) == 2
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-answers:
			if pg, ok := errors.AsType[*pgconn.PgError](err); deed.CodeOf(err) != deed.Conflict && (!ok || pg.Code != "40001") {
				t.Errorf("an end beside the beginning of its run: %v", err)
			}
		case <-time.After(pgtest.Patience):
			t.Fatal("no answer")
		}
	}
	want(t, "events", logOf(t, db, id), "RunApproved, RunStarted")
}
