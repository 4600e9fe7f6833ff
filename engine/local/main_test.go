package local_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// put stores a plan.
func put(t testing.TB, db *pgtest.DB, text string) {
	t.Helper()
	p, err := plan.Parse("plan.yaml", []byte(text))
	if err == nil {
		_, err = plan.Put(t.Context(), db.Pool(pgtest.App), nil, p, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start begins a run of the plan "p", version 1.
func start(t testing.TB, db *pgtest.DB, id string, input any) string {
	t.Helper()
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	if input == nil {
		text = nil
	}
	s, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: id, Input: text})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// serve runs an engine until the test ends, or stop is called.
func serve(t testing.TB, db *pgtest.DB, opts local.Options) (e *local.Engine, stop func()) {
	t.Helper()
	return serveIn(t, db.NewPool(pgtest.Worker, 8), opts)
}

// serveIn is as serve, on a pool of the test's.
func serveIn(t testing.TB, pool *pgxpool.Pool, opts local.Options) (e *local.Engine, stop func()) {
	t.Helper()
	opts.PollInterval = max(opts.PollInterval, 10*time.Millisecond)
	// An exchange that is given up may have claimed.
	opts.StateStore.WriteLatencyBudget = cmp.Or(opts.StateStore.WriteLatencyBudget, pgtest.Patience)
	opts.Deadline = cmp.Or(opts.Deadline, pgtest.Patience)
	e, err := local.New(t.Context(), pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stopped := false
	stop = func() {
		t.Helper()
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return e, stop
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !pgtest.Wait(2*time.Minute, holds) {
		t.Fatalf("waited in vain for %s", what)
	}
}

func statusOf(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select status from deed.runs where run_id = $1::text::uuid`, id)
}

// ended waits until a run has, and returns how.
func ended(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	eventually(t, "the end of run "+id, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select finished_at is not null from deed.runs where run_id = $1::text::uuid`, id)
	})
	return statusOf(t, db, id)
}

// logOf is a run's events as "TYPE STEP#ATTEMPT", in order.
func logOf(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(concat_ws(' ', l.event_type, l.step_id || '#' || l.logical_attempt), ', ' order by l.run_seq), '')
		from deed.run_log l where l.run_id = $1::text::uuid`, id)
}

// errorOf is the code of the newest failure of a step.
func errorOf(t testing.TB, db *pgtest.DB, id, step string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce((select l.event_data -> 'error' ->> 'code' from deed.run_log l where l.run_id = $1::text::uuid and l.step_id = $2 and l.event_type = 'StepFailed' order by l.run_seq desc limit 1), '')`, id, step)
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// has fails unless each of parts is in text, in that order.
func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, p := range parts {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			t.Errorf("%s\nhas no %q, or not in that order", text, p)
			return
		}
		rest = after
	}
}

// effects makes the table in which the programs that tests kill note their calls.
func effects(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `create table public.effects (n serial, key text);
		grant all on public.effects, public.effects_n_seq to deed_worker; grant usage on schema public to deed_worker`)
}

// nothing is what a handler takes that asks for nothing.
type nothing map[string]any

func fail(code string) error { return &run.Failure{Code: code, Err: fmt.Errorf("it failed: %s", code)} }
