package run_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// besides is an engine that takes up to most steps of what is started, and does nothing with them.
type besides struct {
	most int

	mu    sync.Mutex
	asked int               // for what it takes
	told  int               // what it was given, or that it is nothing
	took  []runstep.Claimed // guarded by mu, as the others
	woken int
}

func (b *besides) Beside() runstep.Engine {
	return runstep.Engine{
		Wake: func() { b.mu.Lock(); defer b.mu.Unlock(); b.woken++ }, InHand: func() int { return 0 },
		Claim: func(int) *runstep.Claim {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked++
			return &runstep.Claim{Queues: []string{"deed"}, Worker: "w", Lease: time.Minute, Most: b.most, Take: func(steps []runstep.Claimed, _ time.Time) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.told++
				b.took = append(b.took, steps...)
			}}
		},
	}
}

// One step of each new run is the engine's, of no more runs than it takes: of one that is asked for twice once, of one that waits for a person none, and of each
// tenant its own. For what it does not get it is woken.
func TestStarter_BesideAnEngine(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	e := &besides{most: 3}
	s, _ := starter(t, db, db.NewPool(pgtest.Worker, 4), run.StarterOptions{Engine: e})
	other := tenant.ID{0xb}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), other, "other"); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []tenant.ID{tenant.Default, other} {
		if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `
			select deed.put_plan(convert_to('{"plan":"q","steps":{"a":{"for":"1h0m0s","kind":"sleep"},"b":{"for":"1h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'), p_tenant => $1::text::uuid),
			  deed.put_plan(convert_to('{"approval":"person","plan":"asks","steps":{"a":{"for":"1h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'), p_tenant => $1::text::uuid)`, owner.String()); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(owner tenant.ID, plan, id string) run.Started {
		t.Helper()
		started, err := s.StartFor(t.Context(), owner, run.Request{Plan: plan, ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return started
	}
	first := begin(tenant.Default, "q", "1")
	want(t, "the same", begin(tenant.Default, "q", "1").ID, first.ID)
	want(t, "one that waits for a person", begin(tenant.Default, "asks", "1").Status, run.Pending)
	theirs := begin(other, "q", "1")
	e.mu.Lock()
	want(t, "steps it took", len(e.took), 2)
	for i, r := range []run.Started{first, theirs} {
		want(t, "whose", fmt.Sprint(e.took[i].Run, e.took[i].Tenant, e.took[i].Step, e.took[i].Plan, e.took[i].Version), fmt.Sprint(r.ID, []tenant.ID{tenant.Default, other}[i], "a", "q", "1"))
	}
	want(t, "whether it was woken", e.woken >= 2, true) // for the second steps
	e.mu.Unlock()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			if _, err := s.StartFor(t.Context(), tenant.Default, run.Request{Plan: "q", ID: fmt.Sprint("many ", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	want(t, "whether each claim was told of", e.told, e.asked)
	want(t, "steps it took", len(e.took) <= 2+3*(e.asked-4) && len(e.took) > 2, true)
	want(t, "claims", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where claim is not null and claimed_by = 'w' and engine_attempt = 1 and lease_until > clock_timestamp()`), len(e.took))
	want(t, "runs with two claims", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from (select from deed.run_steps where claim is not null group by run_id having count(*) > 1) x`), 0)
}

// Where the answer is lost each request is asked again, and has one run. What was claimed with it the engine is not told of: it waits for its lease, and nobody begins it twice.
func TestStarter_BesideAnEngineAnswersThatNeverCome(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var armed arming
	e := &besides{most: 100}
	s, _ := starter(t, db, deafPool(t, db, "start_and_claim", &armed), run.StarterOptions{Engine: e})
	armed.Store(3)
	startHundred(t, s)
	want(t, "answers that were still to be lost", armed.Load() > 0, false)
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 100)
	want(t, "events", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log`), 200)
	e.mu.Lock()
	defer e.mu.Unlock()
	want(t, "whether each claim was told of", e.told, e.asked)
	taken := map[string]bool{}
	for _, step := range e.took {
		want(t, "whether run "+step.Run+" was handed over before", taken[step.Run], false)
		taken[step.Run] = true
	}
	want(t, "whether some were claimed and not handed over", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where claim is not null`) > len(e.took), true)
}
