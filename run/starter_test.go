package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// starter starts runs of the plan p until stop, or the end of the test. Its statements have all the time there is: on a machine that is busy with other
// things what takes longer is tried alone, and fails then.
func starter(t testing.TB, db *pgtest.DB, pool *pgxpool.Pool, opts run.StarterOptions) (s *run.Starter, stop func()) {
	t.Helper()
	db.Exec(t, pgtest.App, `select deed.put_plan(convert_to('{"plan":"p","steps":{"a":{"for":"1h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'))`)
	opts.Deadline = pgtest.Patience
	s, err := run.NewStarter(pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, background(t, s.Run)
}

// startedBy is what a caller of a Starter was told.
type startedBy struct {
	req run.Request
	got run.Started
	err error
}

// ask has each of reqs asked for by a goroutine of its own.
func ask(ctx context.Context, s *run.Starter, reqs ...run.Request) []startedBy {
	list := make([]startedBy, len(reqs))
	var wg sync.WaitGroup
	for i, req := range reqs {
		wg.Go(func() {
			list[i].req = req
			list[i].got, list[i].err = s.Start(ctx, req)
		})
	}
	wg.Wait()
	return list
}

// Requests that come together are each what it would be alone: one run, also of one that comes four times, with and
// without its version; what is wrong with one is its own caller's error.
func TestContract_R12_StarterOfMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, _ := starter(t, db, db.Pool(pgtest.App), run.StarterOptions{})
	for round := range 4 {
		var reqs []run.Request
		for i := range 100 {
			reqs = append(reqs, run.Request{Plan: "p", ID: fmt.Sprint(round, "-", i/4), Version: []string{"", "1"}[i%2], Input: map[string]int{"n": i / 4}})
		}
		if round%2 == 1 {
			reqs[10].Plan, reqs[20].Input = "unknown", map[string]int{"n": -1}
		}
		runs, made := map[string]string{}, map[string]int{}
		for i, a := range ask(t.Context(), s, reqs...) {
			switch {
			case a.req.Plan == "unknown":
				want(t, "the error of an unknown plan", deed.CodeOf(a.err), deed.NotFound)
				continue
			case round%2 == 1 && i/4 == 5:
				if (a.err != nil) != (deed.CodeOf(a.err) == deed.Conflict) {
					t.Errorf("%+v: %v", a.req, a.err)
				}
				continue // either input may be the first
			case a.err != nil:
				t.Errorf("%+v: %v", a.req, a.err)
				continue
			}
			if first, ok := runs[a.req.ID]; ok && first != a.got.ID {
				t.Errorf("request %s has made the runs %s and %s", a.req.ID, first, a.got.ID)
			}
			runs[a.req.ID] = a.got.ID
			want(t, "the status", a.got.Status, run.Running)
			if a.got.New {
				made[a.req.ID]++
			}
		}
		for id := range runs {
			want(t, "how often request "+id+" was new", made[id], 1)
		}
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs where status = 'RUNNING'`), 100)
	want(t, "steps", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps`), 100)
	want(t, "inputs", pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(*) from deed.runs r join deed.run_requests q using (run_id)
		where q.request_key = deed.idempotency_key(r.tenant_id::text, 'default', 'default', 'p', '1', '0-' || (r.input ->> 'n'))`), 25)
}

// Each for its tenant.
func TestStarter_OfTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, _ := starter(t, db, db.Pool(pgtest.Worker), run.StarterOptions{})
	owners := []tenant.ID{{0xa}, {0xb}}
	for i, owner := range owners {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), owner, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, pgtest.Worker, `select deed.put_plan(convert_to('{"plan":"p","steps":{"a":{"for":"1h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'), p_tenant => $1::text::uuid)`, owner.String())
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			started, err := s.StartFor(t.Context(), owners[i%2], run.Request{Plan: "p", ID: fmt.Sprint(i / 2)})
			if err != nil || !started.New {
				t.Errorf("%+v, %v", started, err)
			}
		})
	}
	wg.Wait()
	for _, owner := range owners {
		want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs where tenant_id = $1::text::uuid`, owner.String()), 10)
	}
}

// A request that somebody else is starting, in a transaction that is left open, is waited for by its caller alone.
func TestStarter_AnOpenTransactionHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, _ := starter(t, db, db.NewPool(pgtest.App, 8), run.StarterOptions{})
	open, err := db.NewPool(pgtest.App, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := run.Start(t.Context(), open, run.Request{Plan: "p", ID: "held"})
	if err != nil {
		t.Fatal(err)
	}
	// Of more callers than are tried alone at a time, and as they come in again and again.
	var held [8][]startedBy
	var waiting sync.WaitGroup
	for i := range 40 {
		if i < len(held) {
			waiting.Go(func() {
				held[i] = ask(t.Context(), s, run.Request{Plan: "p", ID: "held"}, run.Request{Plan: "p", ID: "held", Version: "1"})
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
		others := ask(ctx, s, run.Request{Plan: "p", ID: fmt.Sprint("a", i)}, run.Request{Plan: "p", ID: fmt.Sprint("b", i), Version: "1"})
		cancel()
		for _, a := range others {
			if a.err != nil || !a.got.New {
				t.Fatalf("%+v: %+v, %v", a.req, a.got, a.err)
			}
		}
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	for _, a := range slices.Concat(held[:]...) {
		if a.err != nil || a.got != (run.Started{ID: first.ID, Status: run.Running}) {
			t.Errorf("the request that was held: %+v, %v; want run %s", a.got, a.err, first.ID)
		}
	}
}

// startHundred asks for a hundred runs, twenty at a time, each of which must come.
func startHundred(t *testing.T, s *run.Starter) {
	t.Helper()
	for round := range 5 {
		var reqs []run.Request
		for i := range 20 {
			reqs = append(reqs, run.Request{Plan: "p", ID: fmt.Sprint(round, "-", i)})
		}
		for _, a := range ask(t.Context(), s, reqs...) {
			if a.err != nil {
				t.Errorf("%+v: %v", a.req, a.err)
			}
		}
	}
}

// A statement whose answer never comes may have started its runs: each is asked for again, and is the same run.
func TestStarter_AnswersThatNeverCome(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var armed arming
	s, _ := starter(t, db, deafPool(t, db, "start_requests", &armed), run.StarterOptions{})
	armed.Store(3)
	startHundred(t, s)
	if n := armed.Load(); n > 0 {
		t.Errorf("%d answers were still to be lost", n)
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 100)
	want(t, "events", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log`), 200)
}

// What comes after a stop, or is wrong in itself, is answered at once.
func TestStarter_Stops(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, stop := starter(t, db, db.Pool(pgtest.App), run.StarterOptions{})
	if started, err := s.Start(t.Context(), run.Request{Plan: "p", ID: "a"}); err != nil || !started.New {
		t.Fatalf("%+v, %v", started, err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("Run is called once")
	}
	stop()
	if _, err := s.Start(t.Context(), run.Request{Plan: "p", ID: "b"}); err == nil {
		t.Error("a Starter that has stopped starts nothing")
	}
	if _, err := s.Start(t.Context(), run.Request{Plan: "p", ID: "b", Input: json.RawMessage(`{`)}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("an input that is no JSON: %v", err)
	}
	if _, err := run.NewStarter(db.NewPool(pgtest.App, 2), run.StarterOptions{Statements: 2, Batch: 1001, Deadline: -time.Second}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("options that are wrong: %v", err)
	}
}

// A run that begins with its request is as one that begins after it: its row, its events with their keys and messages, and its first steps.
func TestContract_R12_BegunAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.Worker, `select deed.put_plan(convert_to('{"plan":"p","steps":{"a":{"for":"1h0m0s","kind":"sleep"},"b":{"for":"1h0m0s","kind":"sleep"},"c":{"after":["a"],"for":"1h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'),
	  p_tenant => $1::text::uuid)`, tenant.Default.String())
	atOnce := pgtest.One[string](t, worker, `select run_id::text from deed.start_run('p', '1', 'a', '{"x": 1}')`)
	later := pgtest.One[string](t, worker, `
		select c.run_id::text from deed.plans p cross join lateral deed.create_run('p', '1', 'b', '{"x": 1}', p_plan_sha256 => p.sha256) c`)
	db.Exec(t, pgtest.Worker, `select deed.start_runs(array[$1::text::uuid])`, later)
	seen := func(r string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select concat_ws(E'\n',
			  (select to_jsonb(r) - '{run_id,created_at,started_at}'::text[] || jsonb_build_object('started', r.started_at = (select l.persisted_at from deed.run_log l where l.run_id = r.run_id and l.run_seq = 2))
			    from deed.runs r where r.run_id = $1::text::uuid),
			  (select string_agg((to_jsonb(l) - '{run_id,emitted_at,persisted_at,idempotency_key}'::text[])::text
			      || (l.idempotency_key = deed.event_key(l.run_id, 'RUN', 1, l.event_type, '1')) || (l.emitted_at = l.persisted_at), E'\n' order by l.run_seq)
			    from deed.run_log l where l.run_id = $1::text::uuid),
			  (select string_agg(concat_ws(' ', l.slot = deed.slot((select t.slot_base from deed.topics t where t.topic = l.topic), l.key, 0), l.topic, l.type, l.tenant_id, l.content_type, l.list_version,
			      l.key = $1, m - '{runId,eventId,idempotencyKey,emittedAt,persistedAt}'::text[],
			      m ->> 'runId' = $1, m ->> 'eventId' = deed.run_event_id($1::text::uuid, (m ->> 'runSeq')::bigint)::text,
			      m ->> 'idempotencyKey' = (select encode(e.idempotency_key, 'hex') from deed.run_log e where e.run_id = $1::text::uuid and e.run_seq = (m ->> 'runSeq')::bigint),
			      (m ->> 'emittedAt')::timestamptz = l.created_at, (m ->> 'persistedAt')::timestamptz = l.created_at, m ->> 'emittedAt' like '%+00:00'), E'\n' order by l.id)
			    from deed.log l cross join lateral (select convert_from(l.payload, 'UTF8')::jsonb as m) m where l.key = $1),
			  (select string_agg((to_jsonb(s) - '{run_id,process_after}'::text[])::text, E'\n' order by s.place) from deed.run_steps s where s.run_id = $1::text::uuid))`, r)
	}
	want(t, "a run that begins with its request", seen(atOnce), seen(later))
}
