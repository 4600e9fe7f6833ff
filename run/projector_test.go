package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// lines is a log that tests read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// projecting runs a relay's projector until stop.
func projecting(t testing.TB, db *pgtest.DB, log *lines) (p *run.Projector, stop func()) {
	t.Helper()
	pool := db.NewPool(pgtest.Worker, 8)
	return projectingWith(t, db, run.NewProjector(pool, run.ProjectorOptions{Logger: slog.New(slog.NewTextHandler(log, nil))}))
}

func projectingWith(t testing.TB, db *pgtest.DB, p *run.Projector) (_ *run.Projector, stop func()) {
	t.Helper()
	return p, reading(t, db, run.Subscription, p, p.Run)
}

// reading has a subscription read, and what else is to run beside it, until stop.
func reading(t testing.TB, db *pgtest.DB, name string, sink deed.Sink, beside ...func(context.Context) error) (stop func()) {
	t.Helper()
	c, err := deed.New(t.Context(), db.NewPool(pgtest.Worker, 8), deed.Options{Subscriptions: []deed.Subscription{{Topic: run.Topic, Name: name, Sink: sink, From: deed.FromBeginning}}, OnNewCluster: deed.Continue})
	if err != nil {
		t.Fatal(err)
	}
	return background(t, append(beside, c.Run)...)
}

// background runs these until stop, or the end of the test.
func background(t testing.TB, runs ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, is) {
		t.Fatalf("timed out waiting for %s", what)
	}
}

func lastOf(t testing.TB, db *pgtest.DB, id string) int64 {
	t.Helper()
	return pgtest.One[int64](t, db.Pool(pgtest.Owner), `select coalesce(max(last_event_seq), 0) from deed.run_snapshots where run_id = $1::text::uuid`, id)
}

// The projector brings every run's snapshot level with its log; each is a new row, and of a
// run's a few are kept.
func TestContract_R6_SnapshotsAreNewRowsAndFew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, stop := projecting(t, db, &lines{})
	runs := []string{running(t, db, "a"), running(t, db, "b")}
	for n := range 40 {
		for _, r := range runs {
			appendAs(t, db, run.New{Run: r, Type: run.StepCompleted, Step: fmt.Sprint("s", n), Attempt: 1, Data: begun})
		}
		if n%5 == 0 {
			eventually(t, "the snapshots", func() bool { return lastOf(t, db, runs[0]) == int64(2*n+4) && lastOf(t, db, runs[1]) == int64(2*n+4) })
		}
	}
	decide(t, db, runs[1], run.RunFailed)
	eventually(t, "the last snapshots", func() bool { return lastOf(t, db, runs[0]) == 82 && lastOf(t, db, runs[1]) == 83 })
	stop()
	for _, r := range runs {
		if found, err := run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, true); err != nil || len(found) > 0 {
			t.Errorf("snapshots are not what the events say: %+v, %v", found, err)
		}
		if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots where run_id = $1::text::uuid`, r); n < 2 || n > 9 {
			t.Errorf("%d snapshots are kept of 82 events", n)
		}
	}
	if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), `update deed.run_snapshots set snapshot = '{}'`); sqlState(err) != "DDCON" {
		t.Errorf("a snapshot is changed in its place: %v", err)
	}
}

// A row that is deleted behind its back halts the run, and it alone; it is told with its
// code, and goes on by itself when the row is there again.
func TestContract_R7_AGapHaltsThatRunAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	r, other := running(t, db, "a"), running(t, db, "b")
	for n := range 3 {
		appendAs(t, db, run.New{Run: r, Type: run.StepCompleted, Step: fmt.Sprint("s", n), Attempt: 1, Data: begun})
	}
	steal(t, db, `create table public.stolen as select * from deed.run_log where run_id = $1::text::uuid and run_seq = 5; delete from deed.run_log where run_id = $1::text::uuid and run_seq = 5`, r)
	var log lines
	p, _ := projecting(t, db, &log)
	eventually(t, "the run to be stale", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.App), `select coalesce((select concat_ws(' ', expected_seq, got_seq) from deed.run_stale where run_id = $1::text::uuid), '')`, r) == "5 6"
	})
	want(t, "it is halted before the gap", lastOf(t, db, r), 4)
	eventually(t, "the other", func() bool { return lastOf(t, db, other) == 2 })
	appendAs(t, db, run.New{Run: other, Type: run.StepStarted, Step: "s", Attempt: 1}, run.New{Run: r, Type: run.StepStarted, Step: "late", Attempt: 1})
	eventually(t, "the other to go on", func() bool { return lastOf(t, db, other) == 3 })
	eventually(t, "the log to say so", func() bool { return strings.Contains(log.String(), run.GapDetected) }) // it does when it has been stored
	if text := log.String(); !strings.Contains(text, r) || strings.Contains(text, other) {
		t.Errorf("the log says %q", text)
	}
	want(t, "gaps", p.Stats().Gaps, 1)
	list, err := run.List(t.Context(), db.Pool(pgtest.App), run.Filter{Stale: true})
	if err != nil || len(list.Items) != 1 || list.Items[0].StaleSince == nil {
		t.Errorf("stale runs: %+v, %v", list, err)
	}
	found, err := run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, false)
	if err != nil || len(found) != 1 || found[0].Missing != 5 {
		t.Errorf("a rebuild: %+v, %v", found, err)
	}
	want(t, "it is halted still", lastOf(t, db, r), 4)
	steal(t, db, `insert into deed.run_log select * from public.stolen where run_id = $1::text::uuid`, r)
	eventually(t, "it to go on by itself", func() bool { return lastOf(t, db, r) == 9 })
	want(t, "stale runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_stale`), 0)
}

// steal changes the log as nobody may.
func steal(t testing.TB, db *pgtest.DB, sql, id string) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Owner), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `set local deed.act = 'run retention'`); err != nil {
			return err
		}
		for part := range strings.SplitSeq(sql, "; ") {
			if _, err := tx.Exec(t.Context(), part, id); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The newest events are gone, and their numbers are given again: what was projected is not
// taken for what is there. A rebuild makes it good.
func TestContract_R7_ASnapshotAheadOfTheLog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	r := running(t, db, "a")
	appendAs(t, db, run.New{Run: r, Type: run.StepCompleted, Step: "s", Attempt: 1, Data: begun})
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	deliver := func() {
		t.Helper()
		rows, err := db.Pool(pgtest.Owner).Query(t.Context(), `select payload, created_at from deed.log where topic = $1 order by id`, run.Topic)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m deed.Message, err error) {
			return m, row.Scan(&m.Payload, &m.CreatedAt)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range p.Deliver(t.Context(), ms) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	stale := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(concat_ws(' ', expected_seq, got_seq), ','), '') from deed.run_stale`)
	}
	deliver()
	deliver() // again, which changes nothing
	want(t, "snapshots", lastOf(t, db, r), 4)
	steal(t, db, `delete from deed.run_log where run_id = $1::text::uuid and run_seq > 2`, r)
	deliver()
	want(t, "stale", stale(), "3")
	appendAs(t, db, run.New{Run: r, Type: run.StepStarted, Step: "x", Attempt: 1}, run.New{Run: r, Type: run.StepSkipped, Step: "y", Attempt: 1}, run.New{Run: r, Type: run.StepSkipped, Step: "z", Attempt: 1})
	deliver()
	want(t, "stale", stale(), "3")
	want(t, "snapshots", lastOf(t, db, r), 4)
	found, err := run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, true)
	if err != nil || len(found) != 1 || found[0].Seq != 4 {
		t.Errorf("what differs: %+v, %v", found, err)
	}
	want(t, "a look changes nothing", stale(), "3")
	if found, err = run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, false); err != nil || len(found) != 1 {
		t.Errorf("what differs: %+v, %v", found, err)
	}
	want(t, "stale", stale(), "")
	want(t, "snapshots", lastOf(t, db, r), 5)
	if found, err = run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, true); err != nil || len(found) != 0 {
		t.Errorf("after it: %+v, %v", found, err)
	}
}

// What somebody else might put on the bus, and types that this program does not know, change
// nothing.
func TestContract_R7_StrangeMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	r := running(t, db, "a")
	var ms []deed.Message
	for _, payload := range []string{
		``, `{`, `[]`, `{"runId": "x"}`, `{"runId": "00000000-0000-7000-8000-000000000000", "runSeq": 3}`, `{"runId": "` + strings.ToUpper(r) + `", "runSeq": 1}`,
	} {
		ms = append(ms, deed.Message{Payload: []byte(payload), CreatedAt: time.Now()})
	}
	for i, err := range p.Deliver(t.Context(), ms) {
		if err != nil {
			t.Errorf("%s: %v", ms[i].Payload, err)
		}
	}
	want(t, "the run", lastOf(t, db, r), 2)
	want(t, "stale runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_stale`), 0)
}

// Lag over five seconds is told with its code, once a minute.
func TestContract_R7_LagIsTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	payload := fmt.Appendf(nil, `{"runId": %q, "runSeq": 2}`, running(t, db, "a"))
	told := func(ages ...time.Duration) (n int, took time.Duration) {
		var log lines
		p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		for _, age := range ages {
			p.Deliver(t.Context(), []deed.Message{{Payload: payload, CreatedAt: time.Now().Add(-age)}})
		}
		return strings.Count(log.String(), run.LagHigh), time.Since(began)
	}
	n, took := told(time.Second)
	for took > 3*time.Second { // so long on the way it is late
		n, took = told(time.Second)
	}
	want(t, "how often it is told of what is a second old", n, 0)
	n, _ = told(6*time.Second, 7*time.Second)
	want(t, "how often it is told of what is older", n, 1)
}

// A database that does not answer costs no message an attempt.
func TestContract_R8_OutagesCostNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	pool := db.NewPool(pgtest.Worker, 1)
	p := run.NewProjector(pool, run.ProjectorOptions{})
	pool.Close()
	ms := []deed.Message{{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": 2}`, r)}, {Payload: []byte(`{}`)}}
	outcomes := p.Deliver(t.Context(), ms)
	if len(outcomes) != 2 || outcomes[0] == nil || outcomes[1] == nil {
		t.Errorf("outcomes %v", outcomes)
	}
	want(t, "the run", lastOf(t, db, r), 0)
}

// A run that cannot be projected halts, and it alone: those beside it on the page go on, and it
// does when it can be, or when it was rebuilt.
func TestContract_R7_ARunThatCannotBeProjectedHaltsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	var log lines
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	runs := map[string]string{}
	for _, name := range []string{"good", "unread", "another's", "refused", "timeless"} {
		runs[name] = running(t, db, name)
	}
	deliver := func(seq int) {
		t.Helper()
		var ms []deed.Message
		for _, r := range runs {
			ms = append(ms, deed.Message{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": %d}`, r, seq)})
		}
		if err := errors.Join(p.Deliver(t.Context(), ms)...); err != nil {
			t.Fatal(err)
		}
	}
	last := func(what string, seqs map[string]int64) {
		t.Helper()
		for name, r := range runs {
			want(t, what+": "+name, lastOf(t, db, r), seqs[name])
		}
	}
	stored := func(name, snapshot string) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) values ($1::text::uuid, '00000000-0000-0000-0000-000000000000', 1, now(), $2::text::jsonb)`, runs[name], snapshot)
	}
	stored("unread", `{"lastEventSeq": "many"}`)
	stored("another's", `{"lastEventSeq": 1, "runId": "`+runs["good"]+`"}`)
	db.Exec(t, pgtest.Owner, `create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one' using errcode = '22000'; end $$`)
	db.Exec(t, pgtest.Owner, `create trigger refuse before insert on deed.run_snapshots for each row when (new.run_id = '`+runs["refused"]+`') execute function public.refuse()`)
	steal(t, db, `select set_config('deed.act', 'run redaction', true) where $1 <> ''; update deed.run_log set emitted_at = 'infinity' where run_id = $1::text::uuid and run_seq = 2`, runs["timeless"])

	for range 2 {
		deliver(2)
		last("halted", map[string]int64{"good": 2, "unread": 1, "another's": 1})
	}
	want(t, "what is noted", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(concat_ws(' ', expected_seq, got_seq), ', ' order by expected_seq, got_seq nulls last) from deed.run_stale`), "1 1, 1 1, 1, 1")
	for name, r := range runs {
		want(t, "the log's lines of "+name, strings.Count(log.String(), run.RunHalted+" run="+r), map[bool]int{true: 1}[name != "good"])
	}

	db.Exec(t, pgtest.Owner, `drop trigger refuse on deed.run_snapshots`)
	steal(t, db, `select set_config('deed.act', 'run redaction', true) where $1 <> ''; update deed.run_log set emitted_at = now() where run_id = $1::text::uuid and run_seq = 2`, runs["timeless"])
	deliver(2)
	last("those that can be", map[string]int64{"good": 2, "unread": 1, "another's": 1, "refused": 2, "timeless": 2})
	for _, name := range []string{"unread", "another's"} {
		if found, err := run.Rebuild(t.Context(), db.Pool(pgtest.Worker), runs[name], false); err != nil || len(found) != 1 {
			t.Errorf("a rebuild: %+v, %v", found, err)
		}
	}
	last("rebuilt", map[string]int64{"good": 2, "unread": 2, "another's": 2, "refused": 2, "timeless": 2})
	want(t, "stale runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_stale`), 0)
}

// Another tenant sees neither a snapshot nor that a run is stale; nobody but the projector
// writes them.
func TestContract_D7_SnapshotsOfTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.ID{0xb}, "b"); err != nil {
		t.Fatal(err)
	}
	made, err := run.CreateFor(t.Context(), db.Pool(pgtest.Worker), tenant.ID{0xb}, run.Request{Plan: "p", Version: "1", ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	decide(t, db, made.ID, run.RunApproved)
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	payload, err := json.Marshal(map[string]any{"runId": made.ID, "runSeq": 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Deliver(t.Context(), []deed.Message{{Payload: payload}}); got != nil {
		t.Fatal(got)
	}
	for id, n := range map[tenant.ID]int{{}: 0, {0xb}: 1} {
		if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
			if err := tenant.Set(t.Context(), tx, id); err != nil {
				return err
			}
			want(t, "snapshots", pgtest.One[int](t, tx, `select count(*) from deed.run_snapshots`), n)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []pgtest.Role{pgtest.App, pgtest.Admin} {
		if _, err := db.Pool(role).Exec(t.Context(), `select deed.store_snapshots('{}', '{}', '{}', '{}')`); sqlState(err) != "42501" {
			t.Errorf("%s stores snapshots: %v", role, err)
		}
	}
}

// Of a long run the snapshots that are kept cost as much an event as those of a short one,
// whatever was projected in between: there are few, and each is twice the one before.
func TestContract_R6_LongRunsCostNoMoreAnEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	r := running(t, db, "a")
	each := map[int]int{}
	for n := 1; n <= 32; n++ {
		var events []run.New
		for i := range 125 { // a start and an end each
			events = append(events, run.New{Run: r, Type: run.StepCompleted, Step: fmt.Sprint("step-", n, "-", i), Attempt: 1, Data: begun})
		}
		appendAs(t, db, events...)
		p.Deliver(t.Context(), []deed.Message{{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": %d}`, r, 250*n+2)}})
		if n == 4 || n == 32 {
			each[n] = pgtest.One[int](t, db.Pool(pgtest.Owner), `select sum(pg_column_size(s.*))::int from deed.run_snapshots s`) / (250 * n)
		}
	}
	want(t, "the newest", lastOf(t, db, r), 8002)
	rows := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots`)
	t.Logf("%d snapshots are kept of 8,002 events; they cost %d bytes an event, and of 1,002 they did %d", rows, each[32], each[4])
	if rows > 7 || each[32] > each[4]*3/2 {
		t.Error("that is more than it should be")
	}
}

// What events say is held of one run at a time, however many a page of messages is of: a projector that was away
// finds much. Not beside other tests, whose memory it would count.
func TestProjector_HoldsTheEventsOfOneRun(t *testing.T) {
	db := pgtest.New(t)
	const runs, each = 60, 30
	data := json.RawMessage(fmt.Sprintf(`{"started_at": "2026-01-02T03:04:05Z", "output": %q}`, strings.Repeat("x", 60_000)))
	var page []deed.Message
	for n := range runs {
		r := running(t, db, fmt.Sprint(n))
		var events []run.New
		for i := range each {
			events = append(events, run.New{Run: r, Type: run.StepCompleted, Step: fmt.Sprint("s", i), Attempt: 1, Data: data})
		}
		appendAs(t, db, events...)
		page = append(page, deed.Message{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": %d}`, r, 2+2*each), CreatedAt: time.Now()})
	}
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	before, most := heap(), int64(0)
	done := make(chan []error)
	go func() { done <- p.Deliver(t.Context(), page) }()
	for tick := time.Tick(time.Millisecond); ; {
		select {
		case errs := <-done:
			want(t, "what failed", fmt.Sprint(errs), "[]")
			want(t, "projected", p.Stats(), run.ProjectorStats{Events: runs * (2 + 2*each), Snapshots: runs})
			if most > 40<<20 {
				t.Errorf("it held %d MB of %d", most>>20, runs*each*len(data)>>20)
			}
			return
		case <-tick:
			most = max(most, heap()-before)
		}
	}
}

// meanwhile does something before the first statement that has the text.
type meanwhile struct {
	deed.DB
	before string
	do     func()
}

const replacesSnapshots, readsEvents = "deed.replace_snapshots", "deed.run_event_id("

func (m *meanwhile) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if do := m.do; do != nil && strings.Contains(sql, m.before) {
		m.do = nil
		do()
	}
	return m.DB.Query(ctx, sql, args...)
}

// A run that ends and is projected while it is rebuilt stays projected: nothing would come
// that brought it there again.
func TestContract_R6_RebuiltBesideAProjector(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	r := running(t, db, "a")
	project := func(seq int) {
		t.Helper()
		if err := errors.Join(p.Deliver(t.Context(), []deed.Message{{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": %d}`, r, seq)}})...); err != nil {
			t.Fatal(err)
		}
	}
	project(2)
	beside := &meanwhile{DB: db.Pool(pgtest.Worker), before: replacesSnapshots, do: func() {
		decide(t, db, r, run.RunCompleted)
		project(3)
	}}
	if found, err := run.Rebuild(t.Context(), beside, r, false); err != nil || len(found) > 0 || beside.do != nil {
		t.Errorf("%+v, %v", found, err)
	}
	want(t, "the newest snapshot", lastOf(t, db, r), 3)
}

// What a redaction took away does not come back by a rebuild that had read the run before it,
// or at the same time: it changes nothing, and the next one has what is left.
func TestContract_D12_RebuiltBesideARedaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	appendAs(t, db, run.New{Run: r, Type: run.StepFailed, Step: "s", Attempt: 1, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "error": {"code": "E", "message": "canary-7"}}`)})
	decide(t, db, r, run.RunFailed)
	beside := &meanwhile{DB: db.Pool(pgtest.Worker), before: replacesSnapshots, do: func() {
		if _, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), r, audit.Act{By: "ann", Reason: "asked for"}); err != nil {
			t.Fatal(err)
		}
	}}
	if _, err := run.Rebuild(t.Context(), beside, r, false); sqlState(err) != "40001" {
		t.Errorf("beside a redaction: %v", err)
	}
	found, err := run.Rebuild(t.Context(), beside, r, false)
	if err != nil || len(found) > 0 {
		t.Errorf("again: %+v, %v", found, err)
	}
	if text := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(s.snapshot::text, ' ') from deed.run_snapshots s`); strings.Contains(text, "canary") || !strings.Contains(text, `"E"`) {
		t.Errorf("a snapshot is %s", text)
	}
}

// A look that a redaction comes into says nothing of it: the snapshots that it had read went with
// what the events said.
func TestRebuild_LooksBesideARedaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	appendAs(t, db, run.New{Run: r, Type: run.StepFailed, Step: "s", Attempt: 1, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "error": {"code": "E", "message": "canary-7"}}`)})
	decide(t, db, r, run.RunFailed)
	if _, err := run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, false); err != nil {
		t.Fatal(err)
	}
	if text := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(s.snapshot::text, ' ') from deed.run_snapshots s`); !strings.Contains(text, "canary") {
		t.Fatalf("before the redaction a snapshot is %s", text)
	}
	beside := &meanwhile{DB: db.Pool(pgtest.Worker), before: readsEvents, do: func() {
		if _, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), r, audit.Act{By: "ann", Reason: "asked for"}); err != nil {
			t.Fatal(err)
		}
	}}
	if found, err := run.Rebuild(t.Context(), beside, r, true); err != nil || len(found) > 0 || beside.do != nil {
		t.Errorf("%+v, %v", found, err)
	}
}
