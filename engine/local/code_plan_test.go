package local_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// What is recorded of inner steps, and what is read of them, costs the same in a run of thousands of events, among many runs, in tables that nobody
// has analysed.
func TestPlan_InnerSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	db.Exec(t, pgtest.Owner, `alter table deed.run_steps set (autovacuum_enabled = off); alter table deed.runs set (autovacuum_enabled = off)`)
	db.Exec(t, pgtest.App, `select deed.start_run('p', '1', n::text) from generate_series(1, 500) n`)
	week := pgtest.One[string](t, db.Pool(pgtest.Owner), `select tableoid::regclass::text from deed.run_log limit 1`)
	db.Exec(t, pgtest.Owner, `alter table `+week+` set (autovacuum_enabled = off)`)
	worker := db.Conn(t, pgtest.Worker)
	rows, err := worker.Query(t.Context(), `select run_id::text, claim from deed.claim_steps('{go:code}', 'w', 500, '1 hour')`)
	if err != nil {
		t.Fatal(err)
	}
	type claimed struct {
		Run   string
		Claim int64
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
	if err != nil || len(list) != 500 {
		t.Fatal(len(list), err)
	}
	record := func(from, n int, run func(int) claimed) (string, []any) {
		runs, places, claims, names, attempts, outcomes := make([]string, n), make([]int, n), make([]int64, n), make([]string, n), make([]int, n), make([]string, n)
		for k := range n {
			runs[k], claims[k], names[k], attempts[k], outcomes[k] = run(k).Run, run(k).Claim, fmt.Sprint("main/s", from+k), 1, "completed"
		}
		return local.CodeStatements.Record, []any{runs, places, claims, names, attempts, outcomes, nil, nil, nil, 3600, "test"}
	}
	long := func(int) claimed { return list[0] }
	for from := range 4 {
		sql, args := record(1000*from, 500, long)
		if _, err := worker.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	for n, test := range []struct {
		what       string
		steps      int
		pages, wal int // for each step
	}{{"one of the long run", 1, 250, 3500}, {"64 of as many runs", 64, 120, 3500}} {
		// The cheapest of a few: one may read the catalogue again, or be the first after a checkpoint.
		pages, wal := math.MaxInt, math.MaxInt
		for again := range 4 {
			sql, args := record(10_000+1000*n+100*again, test.steps, func(k int) claimed { return list[k] })
			c := pgtest.Measure(t, worker, pgtest.Any, sql, args...)
			pages, wal = min(pages, c.Buffers), min(wal, c.WAL)
		}
		t.Logf("%5d pages, %5d bytes of WAL for each inner step: %s", pages/test.steps, wal/test.steps, test.what)
		if pages > test.pages*test.steps || wal > test.wal*test.steps {
			t.Errorf("%s: want at most %d pages and %d bytes of WAL", test.what, test.pages, test.wal)
		}
	}
	pgtest.Measure(t, worker, pgtest.Any, local.CodeStatements.History, list[0].Run, 4000, "main", 1000)
	pages := pgtest.Measure(t, worker, 60, local.CodeStatements.History, list[0].Run, 4000, "main", 1000).Buffers
	t.Logf("%5d pages: what is read of a run that is begun again", pages)
	if pages > 60 {
		t.Errorf("what is read of inner steps touches %d pages, want at most 60", pages)
	}
}

// counter counts the statements that have a word in them.
type counter struct {
	word string
	n    atomic.Int64
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, c.word) {
		c.n.Add(1)
	}
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// An inner step is one statement; those that end at the same time share one, and code that begins reads nothing.
func TestCode_StatementsOfInnerSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{word: "run_log"}
	r := &counter{word: "record_steps"}
	cfg.ConnConfig.Tracer = both{c, r}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const wide = 40
	var all atomic.Int64
	together := make(chan struct{})
	// A statement that was cut off would be made again.
	e, err := local.New(t.Context(), pool, local.Options{PollInterval: 10 * time.Millisecond, Deadline: pgtest.Patience, StateStore: local.StateStore{WriteLatencyBudget: pgtest.Patience}, Handlers: []local.Handler{
		local.Step("code", func(ctx context.Context, _ nothing) (string, error) {
			for n := range 10 {
				if _, err := run.Step(ctx, run.Named("chain", fmt.Sprint(n)), says("")); err != nil {
					return "", err
				}
			}
			var branches []run.Branch
			for n := range wide {
				branches = append(branches, run.Branch{Name: fmt.Sprint("b", n), Do: func(ctx context.Context) error {
					_, err := run.Step(ctx, "a", func(context.Context) (string, error) {
						if all.Add(1) == wide {
							close(together)
						}
						<-together
						return "", nil
					})
					return err
				}})
			}
			return "", run.Parallel(ctx, branches...)
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	checked := r.n.Load()
	ctx, stop := context.WithCancel(context.Background())
	ended1 := make(chan error, 1)
	go func() { ended1 <- e.Run(ctx) }()
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	stop()
	if err := <-ended1; err != nil {
		t.Error(err)
	}
	n := r.n.Load() - checked
	t.Logf("%d statements for %d inner steps", n, 10+wide)
	if n < 11 || n > 10+wide/2 {
		t.Errorf("%d statements for 10 inner steps in a row and %d at the same time", n, wide)
	}
	want(t, "reads of what is recorded", c.n.Load(), 0)
	sound(t, db)
}

type both [2]*counter

func (b both) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	for _, c := range b {
		ctx = c.TraceQueryStart(ctx, conn, data)
	}
	return ctx
}
func (b both) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A start, and its repeat, cost a session the same among thousands of runs as when its plans were made: beside none, in
// tables that nobody has analysed.
func TestPlan_Starts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, codePlan)
	for _, table := range []string{"runs", "run_requests", "run_steps", "run_request_lock"} {
		db.Exec(t, pgtest.Owner, `alter table deed.`+table+` set (autovacuum_enabled = off)`)
	}
	app := db.Conn(t, pgtest.App)
	starts := map[string]string{
		"a start": `select deed.start_run('p', '1', $1)`, "one without a version": `select deed.start_run('p', null, $1)`,
		"a repeat": `select deed.start_run('p', '1', 'few a start1' || left($1, 0))`,
	}
	measure := func(when string, most func(what string) int) map[string]int {
		got := map[string]int{}
		for _, what := range []string{"a start", "one without a version", "a repeat"} {
			for n := range 3 { // the session's first reads the catalogue
				got[what] = pgtest.Measure(t, app, most(what), starts[what], fmt.Sprint(when, " ", what, n)).Buffers
			}
		}
		return got
	}
	few := measure("few", func(string) int { return pgtest.Least })
	most := func(what string) int { return few[what]*3/2 + 20 }
	if _, err := app.Exec(t.Context(), `select count(deed.start_run('p', '1', n::text)) from generate_series(1, 2000) n`); err != nil {
		t.Fatal(err)
	}
	for what, many := range measure("many", most) {
		t.Logf("%s: %d pages, and %d among many", what, few[what], many)
		if many > most(what) {
			t.Errorf("%s touches %d pages, and %d among many", what, few[what], many)
		}
	}
}
