package local_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/journal"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// serveOn is as serve, over a pool of the test's.
func serveOn(t testing.TB, w *wire, opts local.Options) (e *local.Engine, stop func()) {
	t.Helper()
	opts.PollInterval = 10 * time.Millisecond
	e, err := local.New(t.Context(), w.pool(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		w.speak()
		if cancel(); true {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(stop)
	return e, stop
}

// inUse says whether somebody has the journal.
func inUse(t testing.TB, path string) bool {
	t.Helper()
	j, _, err := journal.Open(path, 1<<20)
	if errors.Is(err, journal.ErrInUse) {
		return true
	}
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		t.Error(err)
	}
	return false
}

// entry is one of a journal's.
type entry struct {
	Run     string    `json:"run"`
	Started time.Time `json:"started_at"`
}

// entries are what a journal has.
func entries(t testing.TB, path string) (list []entry) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if i == 0 {
			continue // what it is
		}
		_, text, _ := strings.Cut(line, " ")
		list = append(list, entry{})
		if err := json.Unmarshal([]byte(text), &list[i-1]); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return list
}

// beginnings are the times when a step has begun, as the log has it.
func beginnings(t testing.TB, db *pgtest.DB, id, step string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(to_char(l.emitted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), ' ' order by l.run_seq), '')
		from deed.run_log l where l.run_id = $1::text::uuid and l.step_id = $2 and l.event_type = 'StepStarted'`, id, step)
}

func micros(at time.Time) string {
	return at.UTC().Format("2006-01-02T15:04:05.000000")
}

// An announcement that the database does not take within the budget is in the journal, holds up no step, and is told when the database
// takes it, with the time at which the step began; then the journal is empty.
func TestContract_R14_AnnouncementsGoToTheJournal(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}, b: {kind: go, handler: b, after: [a]}}}`)
	w := newWire(t, db)
	goOn := make(chan struct{})
	path := filepath.Join(t.TempDir(), "journal")
	e, _ := serveOn(t, w, local.Options{
		Journal: path, StateStore: local.StateStore{WriteLatencyBudget: 500 * time.Millisecond},
		Handlers: []local.Handler{
			local.Step("a", func(ctx context.Context, in struct{ Slow bool }) (nothing, error) {
				if in.Slow {
					<-goOn
				}
				return nil, nil
			}),
			local.Step("b", func(context.Context, nothing) (nothing, error) { return nil, nil }),
		},
	})
	w.hush("announce_steps") // not before: a new engine looks at all statements
	slow := start(t, db, "slow", map[string]bool{"slow": true})
	eventually(t, "the announcement to be in the journal", func() bool { return e.Stats().Journaled == 1 })
	want(t, "another run meanwhile", ended(t, db, start(t, db, "other", map[string]bool{})), "COMPLETED")
	kept := entries(t, path)
	// Of the other's steps there may be one behind it, on a machine that is busy with other things.
	if len(kept) == 0 || kept[0].Run != slow || beginnings(t, db, slow, "a") != "" {
		t.Fatalf("the journal has %v, the log %q", kept, beginnings(t, db, slow, "a"))
	}
	w.speak()
	eventually(t, "the journal to be empty", func() bool { return len(entries(t, path)) == 0 })
	want(t, "when it began, by the log", beginnings(t, db, slow, "a"), micros(kept[0].Started))
	eventually(t, "all of it to be told from the journal", func() bool { s := e.Stats(); return s.Replayed == s.Journaled })
	close(goOn)
	want(t, "the run", ended(t, db, slow), "COMPLETED")
	want(t, "its events", logOf(t, db, slow), "RunApproved, RunStarted, StepStarted a#1, StepCompleted a#1, StepStarted b#1, StepCompleted b#1, RunCompleted")
}

// inFiles fails where a file of a directory has a text, as it is or in hexadecimal digits; it says how many files it has looked at.
func inFiles(t testing.TB, dir, text string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		has, err := os.ReadFile(path)
		if files++; bytes.Contains(has, []byte(text)) || bytes.Contains(has, []byte(hex.EncodeToString([]byte(text)))) {
			t.Errorf("%s has %q: %s", path, text, has)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// What goes to the journal while steps have secrets in their hands, of a plan and of a function, and requests that send them, has none.
func TestContract_R14_NoSecretIsInTheJournal(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	goOn := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(goOn) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			t.Errorf("a request with %q", r.Header.Get("Authorization"))
		}
		<-goOn
	}))
	t.Cleanup(server.Close)
	t.Cleanup(letGo)
	put(t, db, `{plan: p, version: "1", steps: {
		a: {kind: go, handler: a, secrets: {key: "secret://psp"}},
		b: {kind: http, url: "`+server.URL+`", secrets: {key: "secret://psp"}, headers: {authorization: "Bearer ${secrets.key}"}}}}`)
	slow := func(ctx context.Context, _ nothing) (bool, error) {
		_, err := run.Step(ctx, "before", func(ctx context.Context) (bool, error) { return run.Secret(ctx, "key") == canary, nil })
		<-goOn
		return run.Secret(ctx, "key") == canary, err
	}
	w, dir := newWire(t, db), t.TempDir()
	e, _ := serveOn(t, w, local.Options{
		Journal: filepath.Join(dir, "journal"), StateStore: local.StateStore{WriteLatencyBudget: 500 * time.Millisecond}, Secrets: vault{"secret://psp": canary}, AllowHosts: []string{"127.0.0.1"},
		Handlers: []local.Handler{local.Step("a", slow), local.Func("f", 1, slow).With(local.Policy{Secrets: map[string]string{"key": "secret://psp"}})},
	})
	w.hush("announce_steps")
	runs := []string{start(t, db, "r", nil)}
	s, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "f", ID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	runs = append(runs, s.ID)
	eventually(t, "the announcements to be in the journal", func() bool { return e.Stats().Journaled == 3 })
	want(t, "entries", len(entries(t, filepath.Join(dir, "journal"))), 3)
	want(t, "files of the journal", inFiles(t, dir, "-psp"), 2)
	w.speak()
	letGo()
	for _, id := range runs {
		want(t, "the run", ended(t, db, id), "COMPLETED")
	}
}

// A process that is killed while it writes the journal, or between telling and emptying it: another goes on. No beginning is told twice, and
// what the journal has is told as it began, by whichever process has the file; the step's secret is nowhere.
func TestContract_R14_KilledAtTheJournal(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/stepper")
	const lease = "VICTIM_LEASE=10s" // one that ran out would have another beginning in the journal
	for _, point := range []string{"journal appending", "journal appended", "journal told", "journal replacing"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			effects(t, db)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: slow, secrets: {key: "secret://psp"}}}}`)
			w, dir := newWire(t, db), t.TempDir()
			path := filepath.Join(dir, "journal")
			victim := program.Start(t, point, "VICTIM_DATABASE_URL="+w.url+"&default_query_exec_mode=exec", "VICTIM_JOURNAL="+path, "VICTIM_SECRET="+pspSecret, lease)
			eventually(t, "the victim to run", func() bool { return strings.Contains(victim.Output(), "victim: runs") })
			w.hush("announce_steps")
			id := start(t, db, "r", nil)
			told := strings.Contains(point, "told") || strings.Contains(point, "replacing")
			if told {
				eventually(t, "the announcement to be in the journal", func() bool { _, err := os.Stat(path); return err == nil && len(entries(t, path)) == 1 })
				w.speak()
			}
			victim.Crashed(t, point, pgtest.Patience)
			kept := entries(t, path)
			inFiles(t, dir, pspSecret)
			want(t, "what is in the journal", len(kept), map[bool]int{false: 1, true: 0}[point == "journal appending"])
			want(t, "whether the log has it", beginnings(t, db, id, "a") != "", told)
			again := program.Start(t, "", "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker), "VICTIM_JOURNAL="+path, "VICTIM_SECRET="+pspSecret, lease)
			eventually(t, "it to be told", func() bool { return beginnings(t, db, id, "a") != "" && len(entries(t, path)) == 0 })
			if len(kept) == 1 {
				want(t, "when it began, by the log", beginnings(t, db, id, "a"), micros(kept[0].Started))
			}
			db.Exec(t, pgtest.Owner, `insert into public.effects (key) values ('go on')`)
			want(t, "the run", ended(t, db, id), "COMPLETED")
			want(t, "its events", logOf(t, db, id), "RunApproved, RunStarted, StepStarted a#1, StepCompleted a#1, RunCompleted")
			again.Stop()
			inFiles(t, dir, pspSecret)
			canaryIn(t, db, pspSecret)
			if log := victim.Output() + again.Output(); strings.Contains(log, pspSecret) {
				t.Errorf("the log of a process has the secret:\n%s", log)
			}
		})
	}
}

// An end that cannot be recorded is kept while its lease lasts. Then the engine's attempt has failed, and is repeated under the same key; only an
// attempt that must not be repeated is kept on.
func TestContract_R14_AnEndPastItsLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more         string
		inner, other bool
		calls        int
		engine       int
	}{
		"by the same engine":   {calls: 2, engine: 2},
		"by another":           {other: true, calls: 2, engine: 2},
		"of an inner step":     {inner: true, calls: 2, engine: 2},
		"not to be repeated":   {more: ", guarantee: at_most_once", calls: 1, engine: 1},
		"an inner step not to": {more: ", guarantee: at_most_once", inner: true, calls: 1, engine: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a`+c.more+`}}}`)
			w := newWire(t, db)
			var mu sync.Mutex
			var keys []string
			effect := func(ctx context.Context) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if keys = append(keys, run.Key(ctx)); len(keys) == 1 {
					w.silence()
				}
				return "done", nil
			}
			// Only the first one's lease is to run out.
			opts := local.Options{
				Lease: 5 * time.Second, StateStore: local.StateStore{WriteLatencyBudget: 500 * time.Millisecond},
				Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (string, error) {
					if c.inner {
						return run.Step(ctx, "inner", effect)
					}
					return effect(ctx)
				})},
			}
			e, _ := serveOn(t, w, opts)
			id := start(t, db, "r", nil)
			eventually(t, "the lease to be over", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where claim is not null and lease_until < clock_timestamp())`)
			})
			switch {
			case c.other:
				serve(t, db, opts)
				want(t, "the run, while the first is cut off", ended(t, db, id), "COMPLETED")
			case c.calls == 2:
				eventually(t, "the end to be given up", func() bool { return e.Stats().Expired == 1 })
			}
			w.speak()
			want(t, "the run", ended(t, db, id), "COMPLETED")
			mu.Lock()
			defer mu.Unlock()
			want(t, "calls", len(keys), c.calls)
			want(t, "keys", fmt.Sprint(keys), fmt.Sprint(slices.Repeat(keys[:1], len(keys))))
			want(t, "by the engine's attempt", pgtest.One[int](t, db.Pool(pgtest.Owner), `select engine_attempt from deed.run_log where run_id = $1::text::uuid and step_id = 'a' and event_type = 'StepCompleted'`, id), c.engine)
		})
	}
}

// So is that of an inner step, also where the step's time is over by then, or that of who has asked for it.
func TestContract_R14_AnInnerEndPastItsTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more string
		own  time.Duration // how long its code gives it
	}{
		"the step's":                   {", timeout: 1500ms", time.Hour},
		"of what must not be repeated": {", timeout: 1500ms, guarantee: at_most_once", time.Hour},
		"its code's own":               {"", 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a`+c.more+`}}}`)
			w := newWire(t, db)
			var calls atomic.Int64
			serveOn(t, w, local.Options{
				Lease: time.Minute, StateStore: local.StateStore{WriteLatencyBudget: 500 * time.Millisecond},
				Handlers: []local.Handler{local.Step("a", func(ctx context.Context, _ nothing) (string, error) {
					ctx, cancel := context.WithTimeout(ctx, c.own)
					defer cancel()
					return run.Step(ctx, "inner", func(ctx context.Context) (string, error) {
						if calls.Add(1) == 1 {
							w.silence()
							context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, w.speak) })
						}
						return "done", nil
					})
				})},
			})
			id := start(t, db, "r", nil)
			eventually(t, "it to end, or a person to be asked", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.runs where finished_at is not null) or exists (select from deed.run_steps where verdict = 'HOLD_OVER' and claim is null)`)
			})
			want(t, "what it came to", statusOf(t, db, id)+errorOf(t, db, id, "a"), "COMPLETED")
			has(t, logOf(t, db, id), "StepCompleted a/inner#1", "StepCompleted a#1")
			want(t, "calls", calls.Load(), 1)
		})
	}
}

// A journal that cannot be used holds up nothing: what it would have waits in memory. Who has it does not share it, and who comes after has it.
func TestContract_R14_AJournalThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path+".another's", []byte("root:x:0:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	goOn := make(chan struct{})
	handlers := []local.Handler{local.Step("a", func(context.Context, nothing) (nothing, error) { calls.Add(1); <-goOn; return nil, nil })}
	store := local.StateStore{WriteLatencyBudget: 300 * time.Millisecond}
	first, stopFirst := serve(t, db, local.Options{Journal: path, StateStore: store})
	eventually(t, "the first to have the journal", func() bool { return inUse(t, path) })
	before := first.Stats().JournalErrors // it may have met this test's own look
	w := newWire(t, db)
	second, _ := serveOn(t, w, local.Options{Journal: path, StateStore: store, Handlers: handlers})
	w.hush("announce_steps")
	id := start(t, db, "r", nil)
	eventually(t, "the second to say that it has no journal", func() bool { return second.Stats().JournalErrors > 0 && calls.Load() == 1 })
	want(t, "what it has written", second.Stats().Journaled, 0)
	stopFirst()
	want(t, "errors of the first", first.Stats().JournalErrors, before)
	eventually(t, "the second to have the journal", func() bool { return second.Stats().Journaled == 1 })
	w.speak()
	eventually(t, "it to be told", func() bool { return len(entries(t, path)) == 0 && beginnings(t, db, id, "a") != "" })
	close(goOn)
	want(t, "the run", ended(t, db, id), "COMPLETED")

	_, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{Journal: path + ".another's"})
	if deed.CodeOf(err) != deed.Invalid {
		t.Errorf("a file that is no journal: %v", err)
	}
}

// An entry that a killed process had not written whole is told of, once.
func TestContract_R14_ATornJournalIsTold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("deed journal 1\n0000"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := pgtest.New(t)
	for _, errs := range []int64{1, 0} {
		e, stop := serve(t, db, local.Options{Journal: path})
		eventually(t, "the engine to have the journal", func() bool { text, err := os.ReadFile(path); return err == nil && string(text) == "deed journal 1\n" })
		stop()
		want(t, "errors", e.Stats().JournalErrors, errs)
	}
}

// What must be stored never fails open.
func TestContract_R14_NoEndFailsOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct {
		store local.StateStore
		good  bool
	}{
		{local.StateStore{WriteLatencyBudget: 3 * time.Second, FailOpenForEventClass: []run.Type{run.StepStarted}, NeverFailOpen: []run.Type{run.StepCompleted, run.StepFailed}}, true},
		{local.StateStore{FailOpenForEventClass: []run.Type{}, NeverFailOpen: []run.Type{run.StepStarted, run.StepSkipped}}, true},
		{local.StateStore{FailOpenForEventClass: []run.Type{run.StepStarted}, NeverFailOpen: []run.Type{run.StepStarted}}, false},
		{local.StateStore{FailOpenForEventClass: []run.Type{run.StepCompleted}}, false},
		{local.StateStore{FailOpenForEventClass: []run.Type{run.StepFailed}}, false},
		{local.StateStore{FailOpenForEventClass: []run.Type{run.RunStarted}}, false},
		{local.StateStore{NeverFailOpen: []run.Type{"StepStartled"}}, false},
		{local.StateStore{WriteLatencyBudget: time.Millisecond}, false},
	} {
		if _, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{StateStore: c.store}); (err == nil) != c.good || err != nil && deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", c.store, err)
		}
	}
}
