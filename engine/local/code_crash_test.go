package local_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// psp is a payment service, which is all that knows what was charged: it notes the key of each call, and answers a key with itself.
type psp struct {
	url string

	mu    sync.Mutex
	calls map[string]int // guarded by mu, by key
	all   int            // guarded by mu
	hold  chan struct{}  // guarded by mu: until it is closed no call is answered; nil: all are
}

const pspSecret = "sk_live_the-service's-secret"

func newPSP(t testing.TB) *psp {
	p := &psp{calls: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if r.Header.Get("Authorization") != "Bearer "+pspSecret || len(key) != 64 {
			t.Errorf("a call with the key %q has no such secret, or none", key)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.mu.Lock()
		p.calls[key]++
		p.all++
		hold := p.hold
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		_, _ = w.Write([]byte(key))
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *psp) called() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// store is a database with runs of the handler "code", each second of them as the function "f", half of which must not be repeated, and what
// is outside of it.
type store struct {
	t           testing.TB
	db          *pgtest.DB
	psp         *psp
	program     harness.Program
	files       string
	often, once []string
	workers     []*harness.Victim
}

func newStore(t testing.TB, db *pgtest.DB, program harness.Program, each int) *store {
	t.Helper()
	s := &store{t: t, db: db, psp: newPSP(t), program: program, files: t.TempDir()}
	db.Exec(t, pgtest.Owner, `create table public.orders (n serial, first text); grant all on public.orders, public.orders_n_seq to deed_worker; grant usage on schema public to deed_worker`)
	put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code, secrets: {key: "secret://psp"}}}}`)
	put(t, db, `{plan: p, version: "2", steps: {main: {kind: go, handler: code, secrets: {key: "secret://psp"}, guarantee: at_most_once}}}`)
	// As in a worker's process: runs of a function may be started once it is registered.
	secrets := map[string]string{"key": "secret://psp"}
	none := func(context.Context, map[string]any) (nothing, error) { return nil, nil }
	if _, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{Secrets: run.SecretSources{}, Handlers: []local.Handler{
		local.Func("f", 1, none).With(local.Policy{Secrets: secrets}), local.Func("f", 2, none).With(local.Policy{Secrets: secrets, AtMostOnce: true}),
	}}); err != nil {
		t.Fatal(err)
	}
	for n := range each {
		for version, list := range map[string]*[]string{"1": &s.often, "2": &s.once} {
			made, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: []string{"p", "f"}[n%2], Version: version, ID: strings.Repeat("x", n+1)})
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, made.ID)
		}
	}
	return s
}

func (s *store) worker(point string, env ...string) *harness.Victim {
	v := s.program.Start(s.t, point, append(env, "VICTIM_DATABASE_URL="+s.db.URL(pgtest.Worker), "VICTIM_PSP="+s.psp.url, "VICTIM_SECRET="+pspSecret, "VICTIM_ARTIFACTS="+s.files)...)
	s.workers = append(s.workers, v)
	return v
}

// settle waits until nothing moves any more: each run has ended, or a person is asked.
func (s *store) settle() {
	s.t.Helper()
	eventually(s.t, "all that can be done to be done", func() bool {
		var left int
		err := s.db.Pool(pgtest.Owner).QueryRow(s.t.Context(), `select count(*) from deed.run_steps where verdict is distinct from 'HOLD_OVER'`).Scan(&left)
		return err == nil && left == 0
	})
}

// charging are the inner steps of the handler "code" that charge.
var charging = []string{"main/first", "main/left/a", "main/left/b", "main/right/a", "main/last"}

// judge holds what was charged, ordered and kept against the log.
func (s *store) judge() {
	t := s.t
	t.Helper()
	owner := s.db.Pool(pgtest.Owner)
	s.psp.mu.Lock()
	defer s.psp.mu.Unlock()
	known := map[string]bool{}
	for _, id := range append(append([]string{}, s.often...), s.once...) {
		status, failure := statusOf(t, s.db, id), errorOf(t, s.db, id, "main")
		once := pgtest.One[string](t, owner, `select plan_version from deed.runs where run_id = $1::text::uuid`, id) == "2"
		whole := status == "COMPLETED" && failure == ""
		if !whole && (!once || status != "RUNNING" || failure != "OUTCOME_UNKNOWN") {
			t.Errorf("run %s, to be done once: %t, is %s with %q", id, once, status, failure)
		}
		for _, step := range charging {
			key := pgtest.One[string](t, owner, `select encode(deed.idempotency_key($1, $2, '1'), 'hex')`, id, step)
			known[key] = true
			recorded := pgtest.One[int](t, owner, `select count(*) from deed.run_log where run_id = $1::text::uuid and step_id = $2 and event_type = 'StepCompleted'`, id, step)
			if n := s.psp.calls[key]; recorded > 0 && n == 0 || whole && recorded != 1 || once && n > 1 {
				t.Errorf("run %s, to be done once: %t, %s: charged %d times, recorded %d times", id, once, step, n, recorded)
			}
		}
		ends := pgtest.One[int](t, owner, `select count(*) from deed.run_log where run_id = $1::text::uuid and event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')`, id)
		if whole && ends != 10 {
			t.Errorf("run %s has %d ends of its step and the 9 inner ones", id, ends)
		}
		orders := pgtest.One[int](t, owner, `select count(*) from public.orders where first = encode(deed.idempotency_key($1, 'main/first', '1'), 'hex')`, id)
		if want := pgtest.One[int](t, owner, `select count(*) from deed.run_log where run_id = $1::text::uuid and step_id = 'main/order' and event_type = 'StepCompleted'`, id); orders != want || whole && want != 1 {
			t.Errorf("run %s: %d orders, recorded %d times", id, orders, want)
		}
		if whole {
			s.artifact(id)
		}
	}
	for key := range s.psp.calls {
		if !known[key] {
			t.Errorf("the service knows the key %s, which is of no step", key)
		}
	}
	want(t, "orders of nothing", pgtest.One[int](t, owner, `select count(*) from public.orders where not exists (select from deed.runs r where first = encode(deed.idempotency_key(r.run_id::text, 'main/first', '1'), 'hex'))`), 0)
	canaryIn(t, s.db, pspSecret)
	for _, v := range s.workers {
		if strings.Contains(v.Output(), pspSecret) {
			t.Errorf("the log of a process has the secret:\n%s", v.Output())
		}
	}
}

// artifact looks at what the log refers to.
func (s *store) artifact(id string) {
	s.t.Helper()
	ref := pgtest.One[string](s.t, s.db.Pool(pgtest.Owner), `
		select concat_ws(' ', a ->> 'uri', a ->> 'sha256') from deed.run_log l cross join jsonb_array_elements(l.event_data -> 'artifacts') a
		where l.run_id = $1::text::uuid and l.step_id = 'main/report' and l.event_type = 'StepCompleted'`, id)
	uri, sum, _ := strings.Cut(ref, " ")
	u, err := url.Parse(uri)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(u.Path)
	if got := sha256.Sum256(text); err != nil || hex.EncodeToString(got[:]) != sum {
		s.t.Errorf("run %s: the artifact %s is not what it was: %v", id, uri, err)
	}
}

// A process that is killed anywhere in its code: two others go on with what was recorded. Each inner step has one end, and is done
// under one key, by which the other end can tell a repeat; what must not be repeated is not, or a person is asked; what Tx does is done once.
func TestContract_R5_CodeKilledAnywhere(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/coder")
	for _, point := range []string{
		"secrets resolved:1", "secrets resolved:5", "inner calling:1", "inner calling:9", "inner called:1", "inner called:11", "recording:1", "recording:4", "recorded:1", "recorded:5",
		"in tx:1", "tx recorded:1", "tx committed:2", "sleeping:1", "artifact put:1", "called:1", "called:6", "exchanging:2", "exchanged:3",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, pgtest.New(t), program, 2)
			s.worker(point).Crashed(t, nameOf(point), pgtest.Patience)
			others := []*harness.Victim{s.worker(""), s.worker("")}
			s.settle()
			for _, v := range others {
				v.Stop()
			}
			s.judge()
		})
	}
}

// A worker that is frozen past its lease while it charges, and comes back when another has done the rest: what it says then counts for
// nothing. Its clock is an hour ahead, the other's an hour behind: only the database's decides.
func TestContract_R5_FrozenWithAnotherClock(t *testing.T) {
	t.Parallel()
	s := newStore(t, pgtest.New(t), harness.Build(t, "github.com/deedhq/deed/internal/crash/coder", harness.Skewed(t)), 1)
	hold := make(chan struct{})
	s.psp.hold = hold
	frozen := s.worker("", "DEED_CLOCK_SKEW=1h")
	eventually(t, "both runs to charge", func() bool { // one of them again, where the machine was too busy to renew its lease
		s.psp.mu.Lock()
		defer s.psp.mu.Unlock()
		return len(s.psp.calls) == 2
	})
	frozen.Freeze()
	s.psp.mu.Lock()
	s.psp.hold = nil
	s.psp.mu.Unlock()
	close(hold)
	other := s.worker("", "DEED_CLOCK_SKEW=-1h")
	s.settle()
	frozen.Thaw()
	eventually(t, "the frozen one to see that it is late", func() bool { return strings.Contains(frozen.Output(), "another's by the time") })
	other.Stop()
	frozen.Stop()
	s.judge()
	want(t, "that must not be repeated and was frozen", errorOf(t, s.db, s.once[0], "main"), "OUTCOME_UNKNOWN")
	want(t, "the other one", statusOf(t, s.db, s.often[0]), "COMPLETED")
	if skew := pgtest.One[float64](t, s.db.Pool(pgtest.Owner), `
		select extract(epoch from persisted_at - emitted_at)::float8 from deed.run_log where step_id = 'main/left/a' and event_type = 'StepStarted'`); skew < 1800 {
		t.Errorf("the clock was not off: %v seconds", skew)
	}
}

// The server is killed and recovers while two workers do runs of both kinds, four times.
func TestContract_R5_CodeWhileTheServerIsKilled(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Private(t, pgembed.Options{})
	s := newStore(t, cluster.DB(t), harness.Build(t, "github.com/deedhq/deed/internal/crash/coder"), 8)
	workers := []*harness.Victim{s.worker(""), s.worker("")}
	for kill := range 4 {
		eventually(t, "charges", func() bool { return s.psp.called() >= 1+kill*12 })
		cluster.Kill()
		if err := cluster.Restart(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	s.settle()
	for _, v := range workers {
		v.Stop()
	}
	s.judge()
}
