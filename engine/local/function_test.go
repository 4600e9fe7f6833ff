package local_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

type receipt struct{ Paid int }

func ship(_ context.Context, o order) (receipt, error) { return receipt{o.Amount}, nil }

// startShip begins a run of the function ship.
func startShip(t testing.TB, db deed.DB, version, id string) string {
	t.Helper()
	s, err := run.Start(t.Context(), db, run.Request{Plan: "ship", Version: version, ID: id, Input: order{ID: id, Amount: 42}})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// A function is a plan of one step: a run of it begins in the business transaction if and only if that commits, for any tenant.
func TestContract_R12_FunctionIsAPlanOfOneStep(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	_, err := run.Start(t.Context(), app, run.Request{Plan: "ship", ID: "early"})
	want(t, "a function that nobody has registered", deed.CodeOf(err), deed.NotFound)
	serve(t, db, local.Options{Handlers: []local.Handler{local.Func("ship", 3, ship)}})

	var undone string
	err = pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
		undone = startShip(t, tx, "", "o1")
		return errors.New("the order is not placed")
	})
	if err == nil {
		t.Fatal("it committed")
	}
	want(t, "runs of what was rolled back", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs where run_id = $1::text::uuid`, undone), 0)
	want(t, "plans of what was rolled back", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.plans`), 0)

	id := startShip(t, app, "", "o1")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "its log", logOf(t, db, id), "RunApproved, RunStarted, StepStarted main#1, StepCompleted main#1, RunCompleted")
	want(t, "its output", pgtest.One[int](t, db.Pool(pgtest.Owner), `select (event_data -> 'output' ->> 'Paid')::int from deed.run_log where event_type = 'StepCompleted'`), 42)
	want(t, "the same request", startShip(t, app, "", "o1"), id)
	want(t, "the same request by its version", startShip(t, app, "3", "o1"), id)

	other := tenant.ID{7}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), other, "other"); err != nil {
		t.Fatal(err)
	}
	s, err := run.StartFor(t.Context(), db.Pool(pgtest.Worker), other, run.Request{Plan: "ship", ID: "o1", Input: order{}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "another tenant's run", ended(t, db, s.ID), "COMPLETED")
	if s.ID == id {
		t.Error("two tenants have one run")
	}
}

// A run keeps its version, waits visibly while no worker has it, and new requests go to the newest that is served.
func TestContract_R5_VersionsOfFunctionsWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app, worker := db.Pool(pgtest.App), db.Pool(pgtest.Worker)
	var calls [5]atomic.Int32
	handler := func(version int) local.Handler {
		return local.Func("ship", version, func(ctx context.Context, o order) (receipt, error) {
			calls[version].Add(1)
			return ship(ctx, o)
		})
	}
	// Registered by a program that has ended: what is started waits.
	for version := 2; version <= 3; version++ {
		if _, err := local.New(t.Context(), worker, local.Options{Handlers: []local.Handler{handler(version)}}); err != nil {
			t.Fatal(err)
		}
	}
	old := startShip(t, app, "2", "old")
	newest := startShip(t, app, "", "newest")
	unserved := func() string {
		list, err := run.List(t.Context(), worker, run.Filter{Unserved: true})
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, r := range list.Items {
			said += r.Plan + "@" + r.Version + " "
		}
		return said
	}
	want(t, "unserved", unserved(), "ship@3 ship@2 ")

	_, stop := serve(t, db, local.Options{Handlers: []local.Handler{handler(2)}, Worker: "two"})
	want(t, "the old one", ended(t, db, old), "COMPLETED")
	want(t, "unserved", unserved(), "ship@3 ")
	var list []run.Worker
	eventually(t, "the worker to say what it serves", func() bool { // beside its work
		var err error
		if list, err = run.Workers(t.Context(), worker); err != nil {
			t.Fatal(err)
		}
		return len(list) == 1
	})
	want(t, "the worker", fmt.Sprint(list[0].Name, list[0].Queues), "two[deed go:ship@2]")
	rolledBack := startShip(t, app, "", "rolled back")
	want(t, "the newest that is served", pgtest.One[string](t, db.Pool(pgtest.Owner), `select plan_version from deed.runs where run_id = $1::text::uuid`, rolledBack), "2")
	want(t, "its end", ended(t, db, rolledBack), "COMPLETED")
	want(t, "a repeat, whatever is served", startShip(t, app, "", "newest"), newest)
	stop()
	if list, _ := run.Workers(t.Context(), worker); len(list) != 0 {
		t.Errorf("a worker that has stopped still serves: %v", list)
	}

	serve(t, db, local.Options{Handlers: []local.Handler{handler(3)}})
	want(t, "the newest", ended(t, db, newest), "COMPLETED")
	want(t, "unserved", unserved(), "")
	want(t, "calls", fmt.Sprint(calls[2].Load(), calls[3].Load()), "2 1")
}

// A pool may have one connection: who registers functions asks for no second one meanwhile.
func TestNew_OnOneConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := local.New(t.Context(), db.NewPool(pgtest.Worker, 1), local.Options{Handlers: []local.Handler{local.Func("ship", 1, ship)}}); err != nil {
		t.Fatal(err)
	}
	want(t, "functions", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_functions`), 1)
}

// What an engine serves is told again soon where that was lost, and not with the next renewal: requests without a version go to an older one meanwhile.
func TestEngine_SaysAgainSoonWhatItServes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var armed atomic.Bool
	e, err := local.New(t.Context(), cutOffPool(t, db, "serve_queues", "before", &armed), local.Options{Lease: 24 * time.Hour, Handlers: []local.Handler{local.Func("ship", 1, ship)}})
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	eventually(t, "what it serves to be known", func() bool {
		list, err := run.Workers(t.Context(), db.Pool(pgtest.Worker))
		return err == nil && len(list) == 1
	})
	if armed.Load() {
		t.Error("nothing was lost")
	}
}

// Requests without a version that come at once, beside a new version, make one run.
func TestContract_R12_UnversionedRequestsAreOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	register := func(version int) {
		if _, err := local.New(t.Context(), worker, local.Options{Handlers: []local.Handler{local.Func("ship", version, ship)}}); err != nil {
			t.Error(err)
		}
	}
	register(1)
	app := db.NewPool(pgtest.App, 8)
	for n := range 10 {
		var ids sync.Map
		var all sync.WaitGroup
		for k := range 8 {
			all.Go(func() {
				if k == 4 {
					register(n + 2)
				}
				ids.Store(startShip(t, app, "", fmt.Sprint("r", n)), true)
			})
		}
		all.Wait()
		count := 0
		ids.Range(func(any, any) bool { count++; return true })
		want(t, "runs of one request", count, 1)
	}
}

// A snapshot does not see what the same request has started since: without a version it is refused, and with one it is one run.
func TestContract_R12_UnversionedRequestsUnderASnapshot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for version := range 2 {
		if _, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{Handlers: []local.Handler{local.Func("ship", version+1, ship)}}); err != nil {
			t.Fatal(err)
		}
	}
	app := db.Pool(pgtest.App)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, version := range []string{"", "1"} {
			tx, err := app.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			_, err = run.Start(t.Context(), tx, run.Request{Plan: "ship", Version: version, ID: string(level)})
			if version == "" {
				has(t, fmt.Sprint(err), "name the version")
				want(t, "the code", deed.CodeOf(err), deed.Invalid)
				err = tx.Rollback(t.Context())
			} else {
				err = errors.Join(err, tx.Commit(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 2)
}

// What a function's one step says is part of its version.
func TestFunc_Policy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var tries atomic.Int32
	flaky := local.Func("flaky", 1, func(ctx context.Context, _ nothing) (nothing, error) {
		if tries.Add(1) < 3 {
			return nil, fail("NOT_YET")
		}
		return nil, nil
	}).With(local.Policy{Attempts: 3, Backoff: time.Millisecond, Timeout: time.Minute, Hold: time.Hour})
	serve(t, db, local.Options{Handlers: []local.Handler{flaky, local.Func("plain", 1, ship)}})
	s, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "flaky", ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, s.ID), "COMPLETED")
	want(t, "attempts", tries.Load(), int32(3))
	stored, err := plan.Load(t.Context(), db.Pool(pgtest.App), nil, "flaky", "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "its plan", string(stored.Body()),
		`{"on_failure":{"hold":"1h0m0s"},"plan":"flaky","steps":{"main":{"handler":"flaky@1","kind":"go","retry":{"attempts":3,"backoff":"1ms"},"timeout":"1m0s"}},"version":"1"}`)

	for name, c := range map[string]struct {
		h    local.Handler
		code deed.Code
	}{
		"the same version with other retries": {local.Func("flaky", 1, ship), deed.Conflict},
		"version 0":                           {local.Func("plain", 0, ship), deed.Invalid},
		"a name that is none":                 {local.Func("a b", 1, ship), deed.Invalid},
		"retries that are none":               {local.Func("other", 1, ship).With(local.Policy{Attempts: 101}), deed.Invalid},
		"a handler with a policy":             {local.Step("h", ship).With(local.Policy{Attempts: 2}), deed.Invalid},
	} {
		_, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{Handlers: []local.Handler{c.h}})
		if deed.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}
