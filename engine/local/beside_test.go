package local_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// starterBeside starts runs beside an engine until the end of the test.
func starterBeside(t testing.TB, pool *pgxpool.Pool, e run.Engine) *run.Starter {
	t.Helper()
	s, err := run.NewStarter(pool, run.StarterOptions{Engine: e, Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

// notesClaims has the database note each claim of a step, and whether its run was made in the same transaction: by the time that a test looks the step may have begun, or be over.
func notesClaims(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		create table public.claims (run_id uuid, step_id text, claimed_by text, as_made bool);
		create function public.note_claim() returns trigger language plpgsql security definer as $$
		begin
		  insert into public.claims values (new.run_id, new.step_id, new.claimed_by,
		    (select q.xmin = pg_current_xact_id()::xid from deed.run_requests q where q.run_id = new.run_id));
		  return new;
		end $$;
		create trigger note_claim after update on deed.run_steps for each row when (old.claim is null and new.claim is not null) execute function public.note_claim();
		create trigger note_insert after insert on deed.run_steps for each row when (new.claim is not null) execute function public.note_claim()`)
}

// claimedAsMade are the steps of a run that were claimed in the transaction that has made it, and by whom.
func claimedAsMade(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(concat_ws(' ', c.step_id, c.claimed_by), ', ' order by c.step_id), '') from public.claims c where c.as_made and c.run_id = $1::text::uuid`, id)
}

// A step that an engine serves is claimed in the transaction that starts its run, one that it does not serve waits for another; and the run goes on as any does.
func TestBeside_ClaimsWhatIsStarted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `
plan: p
version: "1"
steps:
  mine:   {kind: go, handler: mine}
  my2nd:  {kind: go, handler: mine, guarantee: at_most_once}
  theirs: {kind: go, handler: theirs}
  last:   {kind: go, handler: last, after: [mine, my2nd, theirs]}
`)
	notesClaims(t, db)
	release := make(chan struct{})
	e, _ := serve(t, db, local.Options{Worker: "w", Concurrency: 40, PollInterval: time.Hour, Handlers: []local.Handler{
		local.Step("mine", func(ctx context.Context, in struct{ Wait bool }) (string, error) {
			if in.Wait {
				<-release
			}
			return run.Key(ctx), nil
		}),
		local.Step("last", func(context.Context, nothing) (nothing, error) { return nil, nil }),
	}})
	s := starterBeside(t, db.NewPool(pgtest.Worker, 4), e)
	// It takes nothing in before it has looked whether others wait.
	eventually(t, "the engine to take what is started", func() bool { return e.Beside().Claim(0) == nil && takes(e) })
	req := run.Request{Plan: "p", Version: "1", ID: "r", Input: map[string]bool{"wait": true}}
	started, err := s.StartFor(t.Context(), tenant.Default, req)
	if err != nil || !started.New || started.Status != run.Running {
		t.Fatalf("%+v, %v", started, err)
	}
	// Of a run one: for the second the engine is woken.
	want(t, "claimed as they were made", claimedAsMade(t, db, started.ID), "mine w")
	if again, err := s.StartFor(t.Context(), tenant.Default, req); err != nil || again.New || again.ID != started.ID {
		t.Errorf("the same request: %+v, %v", again, err)
	}
	if _, err := s.StartFor(t.Context(), tenant.Default, run.Request{Plan: "p", Version: "2", ID: "r"}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("a version that is not stored: %v", err)
	}
	close(release)
	serve(t, db, local.Options{Handlers: []local.Handler{local.Step("theirs", func(context.Context, nothing) (nothing, error) { return nil, nil })}})
	eventually(t, "the others to end", func() bool {
		e.Wake() // the last step is made ready by the other engine
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select finished_at is not null from deed.runs where run_id = $1::text::uuid`, started.ID)
	})
	want(t, "the run", statusOf(t, db, started.ID), "COMPLETED")
	want(t, "attempts of each step", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(concat_ws(' ', l.step_id, l.engine_attempt, l.event_data ->> 'output'), ', ' order by l.step_id)
		from deed.run_log l where l.run_id = $1::text::uuid and l.event_type = 'StepCompleted'`, started.ID),
		fmt.Sprintf("last 1, mine 1 %s, my2nd 1 %s, theirs 1", keyOf(t, db, started.ID, "mine"), keyOf(t, db, started.ID, "my2nd")))
}

// A run that was made before, and begins by the request, is not claimed with it; the engine is woken for it.
func TestBeside_WakesForWhatIsNotNew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	e, _ := serve(t, db, local.Options{PollInterval: time.Hour, Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil })}})
	s := starterBeside(t, db.NewPool(pgtest.Worker, 4), e)
	eventually(t, "the engine to take what is started", func() bool { return takes(e) })
	var hash []byte
	if err := db.Pool(pgtest.Owner).QueryRow(t.Context(), `select sha256 from deed.plans`).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	req := run.Request{Plan: "p", Version: "1", ID: "r"}
	made := req
	made.PlanHash = hash
	if _, err := run.CreateFor(t.Context(), db.Pool(pgtest.Worker), tenant.Default, made); err != nil {
		t.Fatal(err)
	}
	started, err := s.StartFor(t.Context(), tenant.Default, req)
	if err != nil || started.New {
		t.Fatalf("%+v, %v", started, err)
	}
	want(t, "the run", ended(t, db, started.ID), "COMPLETED")
}

// takes reports whether e takes what is started, without giving it any.
func takes(e *local.Engine) bool {
	claim := e.Beside().Claim(1)
	if claim == nil {
		return false
	}
	claim.Take(nil, time.Now())
	return true
}

func keyOf(t testing.TB, db *pgtest.DB, id, step string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select encode(deed.idempotency_key($1, $2, '1'), 'hex')`, id, step)
}

// Many callers beside an engine: each run is done once, whether it was claimed as it was made or not.
func TestBeside_EachRunIsDoneOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	notesClaims(t, db)
	const runs = 300
	var mu sync.Mutex
	done := map[int]int{}
	e, _ := serve(t, db, local.Options{Concurrency: 16, Handlers: []local.Handler{local.Func("f", 1, func(_ context.Context, in struct{ N int }) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		done[in.N]++
		return in.N, nil
	})}})
	s := starterBeside(t, db.NewPool(pgtest.Worker, 8), e)
	alone := 0 // an engine that others keep busy may have no room all the while
	eventually(t, "one to be claimed as it is made", func() bool {
		if _, err := s.StartFor(t.Context(), tenant.Default, run.Request{Plan: "f", ID: fmt.Sprint("alone ", alone), Input: map[string]int{"n": -1 - alone}}); err != nil {
			t.Fatal(err)
		}
		alone++
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from public.claims c where c.as_made)`)
	})
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for n := c; n < runs; n += 16 {
				if _, err := s.StartFor(t.Context(), tenant.Default, run.Request{Plan: "f", ID: fmt.Sprint(n), Input: map[string]int{"n": n}}); err != nil {
					t.Errorf("run %d: %v", n, err)
				}
				if n%10 == 0 { // one that somebody else finds
					if _, err := run.StartFor(t.Context(), db.Pool(pgtest.Worker), tenant.Default, run.Request{Plan: "f", ID: fmt.Sprint("other ", n), Input: map[string]int{"n": runs + n}}); err != nil {
						t.Errorf("other run %d: %v", n, err)
					}
				}
			}
		})
	}
	wg.Wait()
	all := runs + runs/10 + alone
	eventually(t, "all to end", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs where status = 'COMPLETED'`) == all
	})
	want(t, "whether all were claimed as they were made", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select bool_and(as_made) from public.claims`), false)
	mu.Lock()
	defer mu.Unlock()
	want(t, "runs that were done", len(done), all)
	for n, times := range done {
		want(t, fmt.Sprint("times that run ", n, " was done"), times, 1)
	}
	want(t, "events", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log`), 5*all)
}

// Of what one statement starts as many steps are claimed as it may claim, one of a run, and none of a run that is another's, waits for a person, or was there.
func TestBeside_ClaimsUpToItsLimit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	notesClaims(t, db)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}, b: {kind: go, handler: a}, c: {kind: go, handler: other}}}`)
	put(t, db, `{plan: q, version: "1", approval: person, steps: {a: {kind: go, handler: a}}}`)
	put(t, db, `{plan: r, version: "1", steps: {c: {kind: go, handler: other}}}`)
	said := pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select string_agg(concat_ws(' ', s.created, s.status, s.waits, s.step_id), ', ' order by s.ordinal)
		from deed.start_and_claim('{q,r,p,p,p}', '{1,1,1,1,1}', '{1,1,1,1,2}', array_fill('{}'::jsonb, array[5]), array_fill('x'::text, array[5]), array_fill('x'::text, array[5]),
		  array_fill(null::uuid, array[5]), array_fill(null::uuid, array[5]), array_fill(null::text, array[5]), array_fill('00000000-0000-0000-0000-000000000000'::uuid, array[5]), '{go:a}', 'w', 1) s`)
	want(t, "what is said of each", said, "t PENDING f, t RUNNING f, t RUNNING t a, f RUNNING t, t RUNNING t")
	want(t, "claims", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(concat_ws(' ', plan_id, step_id, claimed_by, engine_attempt, lease_until > clock_timestamp()), ', ') from deed.run_steps join deed.runs using (run_id) where claim is not null`), "p a w 1 t")
}

// An engine that has stopped takes nothing, and what was claimed as it stopped is given back: it counts as no attempt, and whoever looks next has it at once.
func TestBeside_StopsInBetween(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	notesClaims(t, db)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, guarantee: at_most_once}}}`)
	a := local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil })
	e, stop := serve(t, db, local.Options{Worker: "w", PollInterval: time.Hour, Handlers: []local.Handler{a}})
	var claim *runstep.Claim
	eventually(t, "the engine to take what is started", func() bool { claim = e.Beside().Claim(1); return claim != nil })
	var step runstep.Claimed
	err := db.Pool(pgtest.Worker).QueryRow(t.Context(), `
		select run_id::text, place, claim, tenant_id, step_id, at_most_once, plan_id, plan_version, plan_sha256, input
		from deed.start_and_claim('{p}', '{1}', '{r}', '{"{}"}', '{default}', '{default}', '{null}', '{null}', '{null}', array['00000000-0000-0000-0000-000000000000'::uuid], $1, $2, $3)`,
		claim.Queues, claim.Worker, claim.Most).Scan(&step.Run, &step.Place, &step.Claim, (*[16]byte)(&step.Tenant), &step.Step, &step.AtMostOnce, &step.Plan, &step.Version, &step.Hash, (*[]byte)(&step.Input))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the step", claimedAsMade(t, db, step.Run), "a w")
	stop()
	claim.Take([]runstep.Claimed{step}, time.Now())
	want(t, "what it has given back", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', ready, claim, engine_attempt, lost_claims) from deed.run_steps`), "t 0 0")
	want(t, "whether it takes anything", takes(e), false)
	s := starterBeside(t, db.NewPool(pgtest.Worker, 4), e)
	later, err := s.StartFor(t.Context(), tenant.Default, run.Request{Plan: "p", Version: "1", ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, db, local.Options{Handlers: []local.Handler{a}})
	want(t, "the run", ended(t, db, step.Run), "COMPLETED")
	want(t, "the one that was started beside an engine that has stopped", ended(t, db, later.ID), "COMPLETED")
}

// A login that may start and not claim is told so: each of its requests tried alone would be done, and nobody would know why so slowly.
func TestBeside_NeedsAWorkersLogin(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	e, _ := serve(t, db, local.Options{PollInterval: time.Hour, Handlers: []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil })}})
	s := starterBeside(t, db.NewPool(pgtest.App, 4), e)
	eventually(t, "the engine to take what is started", func() bool { return takes(e) })
	if _, err := s.Start(t.Context(), run.Request{Plan: "p", Version: "1", ID: "r"}); err == nil || !strings.Contains(err.Error(), "start_and_claim") {
		t.Errorf("%v, want one that names what it may not", err)
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 0)
}

// A process that starts runs and does them is killed anywhere: before the commit that makes and claims them, between it and the hand-over, before the answers, as they
// are done. Each request that was answered has its run, asked again each has one, and each is done, its effects under one key.
func TestContract_R5_StarterBesideKilledAnywhere(t *testing.T) {
	t.Parallel()
	const requests = 40
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/stepper")
	for _, point := range []string{"starting together:3", "started together:1", "started together:4", "given:1", "answering:5", "calling:7", "called:9", "exchanging:6"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			effects(t, db)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: again}, b: {kind: go, handler: again, after: [a]}}}`)
			start := func(point string) *harness.Victim {
				return program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker), "VICTIM_REQUESTS="+strconv.Itoa(requests))
			}
			victim := start(point)
			victim.Crashed(t, nameOf(point), pgtest.Patience)
			again := start("")
			owner := db.Pool(pgtest.Owner)
			eventually(t, "all runs to end", func() bool {
				return pgtest.One[int](t, owner, `select count(*) from deed.runs where status = 'COMPLETED'`) == requests
			})
			eventually(t, "all requests to be answered", func() bool { return strings.Count(again.Output(), "answered ") == requests })
			again.Stop()
			of := map[string]string{}
			for line := range strings.Lines(victim.Output() + again.Output()) {
				if f := strings.Fields(line); len(f) == 3 && f[0] == "answered" {
					if r, ok := of[f[1]]; ok && r != f[2] {
						t.Errorf("request %s was answered with run %s, and then with %s", f[1], r, f[2])
					}
					of[f[1]] = f[2]
				}
			}
			want(t, "requests that have an answer", len(of), requests)
			want(t, "runs", pgtest.One[int](t, owner, `select count(*) from deed.runs`), requests)
			want(t, "keys of effects", pgtest.One[int](t, owner, `select count(distinct key) from public.effects`), 2*requests)
			want(t, "steps that are left", pgtest.One[int](t, owner, `select count(*) from deed.run_steps`), 0)
		})
	}
}
