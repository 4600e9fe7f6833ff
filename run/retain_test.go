package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/upkeep"
	"github.com/deedhq/deed/run"
)

// Of a run that was redacted nothing is left of what people put into it; what it was by its
// events is, and so are the proofs.
func TestContract_D12_ARedactedRunKeepsItsProofs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const canary = "canary-7"
	made, err := run.Create(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: "1", Input: json.RawMessage(`{"who": "` + canary + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{})
	act := audit.Act{By: "ann", Reason: "asked for"}
	decide(t, db, made.ID, run.RunApproved)
	if _, err := write(t.Context(), db.Pool(pgtest.Owner), run.New{Run: made.ID, Type: run.RunStarted, Data: json.RawMessage(`{"engine_run_ref": {"workflow": "w", "parent": null}, "steps": ["s"], "why": null}`)}); err != nil {
		t.Fatal(err)
	}
	step := run.New{Run: made.ID, Type: run.StepFailed, Step: "s", Attempt: 1, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "error": {"code": "E", "message": "` + canary + `", "retryable": true}, "output": "` + canary + `", "claim": "` + canary + `"}`)}
	appendAs(t, db, step)
	if _, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), made.ID, act); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("a run that goes on: %v", err)
	}
	decide(t, db, made.ID, run.RunFailed)
	p.Deliver(t.Context(), []deed.Message{{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": 5}`, made.ID)}})
	if _, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), made.ID, audit.Act{}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("without a reason: %v", err)
	}
	if _, err := run.Redact(t.Context(), db.Pool(pgtest.Worker), made.ID, act); sqlState(err) != "42501" {
		t.Errorf("a worker redacts: %v", err)
	}
	n, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), made.ID, act)
	if err != nil || n != 5 {
		t.Fatal(n, err)
	}
	for _, table := range []string{"runs", "run_log", "run_snapshots", "run_events", "audit_log"} {
		if text := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(r::text, ' '), '') from deed.`+table+` r`); strings.Contains(text, canary) {
			t.Errorf("%s has it still: %s", table, text)
		}
	}
	shown, err := run.Show(t.Context(), db.Pool(pgtest.App), made.ID, 0)
	if err != nil || shown.Snapshot.Status != run.Failed || shown.Snapshot.RootCause.Error.Code != "E" || shown.RedactedAt == nil {
		t.Errorf("%+v, %v", shown, err)
	}
	want(t, "the engine's reference, nulls and all", pgtest.One[string](t, db.Pool(pgtest.Owner), `select event_data::text from deed.run_log where run_seq = 2`), `{"steps": ["s"], "engine_run_ref": {"parent": null, "workflow": "w"}}`)
	want(t, "what failed", pgtest.One[string](t, db.Pool(pgtest.Owner), `select event_data::text from deed.run_log where event_type = 'StepFailed'`), `{"error": {"code": "E", "retryable": true}, "started_at": "2026-01-02T03:04:05Z"}`)
	want(t, "snapshots", lastOf(t, db, made.ID), 5)
	want(t, "a repeat that says the same", appendAs(t, db, step)[0].Repeated, true)
	want(t, "repeats that say something else", pgtest.One[int](t, db.Pool(pgtest.Owner), `select differing from deed.runs`), 0)
	if again, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), made.ID, act); err != nil || again != 0 {
		t.Errorf("again: %d, %v", again, err)
	}
	want(t, "what is recorded", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(concat_ws(' ', actor, action, subject_id, reason, affected), ', ') from deed.audit_log where subject_type = 'run'`),
		"ann redact "+made.ID+" asked for 5")
}

// What a redaction took away does not come back by a projector that had read the run before
// it and stores it afterwards, or at the same time.
func TestContract_D12_NothingComesBackOfARedactedRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const store = `select count(*) from deed.store_snapshots(array[$1::text::uuid], '{1}', array['{"steps": [{"error": {"message": "canary-7"}}]}'::jsonb], '{false}')`
	ended := func() string {
		made, err := run.Create(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: fmt.Sprint(time.Now().UnixNano())})
		if err != nil {
			t.Fatal(err)
		}
		decide(t, db, made.ID, run.RunApproved, run.RunStarted, run.RunFailed)
		return made.ID
	}
	redact := func(id string) error {
		_, err := run.Redact(t.Context(), db.Pool(pgtest.Admin), id, audit.Act{By: "ann", Reason: "asked for"})
		return err
	}
	before := ended()
	if err := redact(before); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Worker, store, before)
	want(t, "snapshots after event 1", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots where run_id = $1::text::uuid and last_event_seq = 1`, before), 0)
	want(t, "to be looked at again", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.run_behind where run_id = $1::text::uuid and seq >= 1`, before), 1)

	during := ended()
	tx, err := db.Pool(pgtest.Worker).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), store, during); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- redact(during) }()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return len(result) == 1 || pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%redact_run%'`) == 1
	}) {
		t.Error("the redaction neither waits nor ends")
	}
	if err := errors.Join(tx.Commit(t.Context()), <-result); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots s where s.snapshot::text like '%canary%'`); n != 0 {
		t.Errorf("%d snapshots have it", n)
	}
}

// longAgo is a database with such a week as old makes, all of whose runs are projected.
func longAgo(t *testing.T, ended int, living bool) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	db.Broken()
	old(t, db, ended, living)
	project1(t, db)
	return db
}

// old makes a week long ago, with so many runs that have ended then, and one that has not.
func old(t *testing.T, db *pgtest.DB, ended int, living bool) {
	t.Helper()
	for _, sql := range []string{
		`create table deed.run_log_w2800 (like deed.run_log including all)`,
		`create trigger run_log_truncate before truncate on deed.run_log_w2800 for each statement execute function deed.refuse_run_change()`,
		`do $$
		declare v_from text := lpad(to_hex(2800 * 604800000::bigint), 12, '0') || repeat('0', 20); v_upto text := lpad(to_hex(2801 * 604800000::bigint), 12, '0') || repeat('0', 20);
		begin
		  execute format('alter table deed.run_log attach partition deed.run_log_w2800 for values from (%L) to (%L)', v_from::uuid, v_upto::uuid);
		  insert into deed.run_partitions (n, from_id, upto_id) values (2800, v_from::uuid, v_upto::uuid);
		end $$`,
	} {
		db.Exec(t, pgtest.Owner, sql)
	}
	insert := func(n int, status, ended string) {
		id := fmt.Sprintf(`(lpad(to_hex(2800 * 604800000::bigint + %d), 12, '0') || '70008000000000000000')::uuid`, n)
		db.Exec(t, pgtest.Owner, `insert into deed.runs (run_id, tenant_id, input_sha256, created_at, finished_at, project, environment, plan_id, plan_version, engine, status, input)
			select `+id+`, '00000000-0000-0000-0000-000000000000', sha256(''), now() - interval '1 year', `+ended+`, 'p', 'e', 'p', '1', 'local', '`+status+`', '{}'`)
		db.Exec(t, pgtest.Owner, `insert into deed.run_requests (request_key, run_id, tenant_id) select sha256(`+fmt.Sprintf("'%d'", n)+`), `+id+`, '00000000-0000-0000-0000-000000000000'`)
		db.Exec(t, pgtest.Owner, `insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, event_type, idempotency_key, event_data)
			select `+id+`, '00000000-0000-0000-0000-000000000000', 1, now() - interval '1 year', now() - interval '1 year', 1, case when '`+status+`' = 'FAILED' then 'RunFailed' else 'RunApproved' end, sha256('x'), '{}'`)
	}
	for n := range ended {
		insert(n, "FAILED", "now() - interval '100 days'")
	}
	if living {
		insert(ended, "APPROVED", "null")
	}
}

func retain(t *testing.T, db *pgtest.DB, limit int) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Worker), `select coalesce((select concat_ws(' ', did, week, runs) from deed.retain_runs('90 days', $1)), '')`, limit)
}

func project1(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select r.run_id, r.tenant_id, 1, now(), '{}' from deed.runs r on conflict do nothing`)
}

// A week of runs that have all ended long enough ago goes as a partition; nothing that was
// not projected does, nor what a subscription has still to read.
func TestContract_O11_AWeekOfRunsGoes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	old(t, db, 3, false)
	fresh := running(t, db, "fresh")
	want(t, "before it is projected", retain(t, db, 10), "")
	project1(t, db)
	db.Exec(t, pgtest.Admin, `select deed.subscribe('deed.run_events', 'hooks', 'beginning')`)
	db.Exec(t, pgtest.Owner, `update deed.log set created_at = created_at - interval '400 days'`)
	want(t, "while somebody has still to read", retain(t, db, 10), "")
	db.Exec(t, pgtest.Admin, `select deed.remove_subscription('deed.run_events', 'hooks', 'x')`)
	want(t, "then", retain(t, db, 10), "emptied 2800 3")
	want(t, "then", retain(t, db, 10), "dropped 2800 0")
	want(t, "then", retain(t, db, 10), "")
	want(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select concat_ws(' ', (select count(*) from deed.runs), (select count(*) from deed.run_log), (select count(*) from deed.run_requests), (select count(*) from deed.run_snapshots), to_regclass('deed.run_log_w2800'))`), "1 2 1 1")
	want(t, "the fresh one", status(t, db, fresh), "RUNNING")
	if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.retain_runs('1 hour')`); sqlState(err) != "DDARG" {
		t.Errorf("an hour: %v", err)
	}
}

// Where one old run lives on, those that have ended go a few at a time, and it stays.
func TestContract_O11_ARunThatLivesOnStays(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 5, true)
	for _, did := range []string{"deleted 2800 2", "deleted 2800 2", "deleted 2800 1", ""} {
		want(t, "a step", retain(t, db, 2), did)
	}
	want(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(concat_ws(' ', r.status, l.event_type), ',') from deed.runs r join deed.run_log l using (run_id)`), "APPROVED RunApproved")
}

// No step looks at all the runs of a week of many, which would take the longer the more there are: they go a few at a time, and the last of them with
// the partition.
func TestRetain_AWeekOfManyRuns(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 22, false)
	db.Exec(t, pgtest.Owner, `
		create sequence public.looks;
		create or replace function deed.run_was_read(p_run uuid, p_tenant uuid, p_subscriptions int[], p_unread timestamptz) returns boolean language sql volatile
		as 'select nextval(''public.looks'') > 0'`)
	want(t, "the first step", retain(t, db, 1), "deleted 2800 1")
	want(t, "how often it has looked at a run", pgtest.One[int](t, db.Pool(pgtest.Owner), `select last_value from public.looks`), 2)
	for _, did := range []string{"deleted 2800 1", "emptied 2800 20", "dropped 2800 0", ""} {
		want(t, "a step", retain(t, db, 1), did)
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 0)
}

// Of a large week it removes no more in a row than it takes a while for, and goes on later: runs that miss an event are looked at in between.
func TestProjector_RetainsForAWhile(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 3, false)
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{Retention: 90 * 24 * time.Hour})
	for step, is := range []string{"0 runs, its table t, more true", "0 runs, its table f, more true", "0 runs, its table f, more false"} {
		more, err := p.Retain(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		want(t, fmt.Sprint("after step ", step+1), pgtest.One[string](t, db.Pool(pgtest.Owner),
			`select format('%s runs, its table %s, more ', (select count(*) from deed.runs), to_regclass('deed.run_log_w2800') is not null)`)+fmt.Sprint(more), is)
	}
}

// Nor does it wait for a minute then, but for its next turn, and looks at those runs once in between.
func TestProjector_RetainsInItsNextTurn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	db.Exec(t, pgtest.Owner, `
		create or replace function deed.retain_runs(p_keep interval, p_limit int default 1000) returns table (did text, week int, runs bigint) language sql
		as 'select ''deleted'', 2800, 1000::bigint from pg_sleep(1.1)'`)
	cfg, made := db.NewPool(pgtest.Worker, 2).Config(), &turns{}
	cfg.ConnConfig.Tracer = made
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	stop := background(t, run.NewProjector(pool, run.ProjectorOptions{Retention: 90 * 24 * time.Hour}).Run)
	eventually(t, "two turns and a half", func() bool { return len(made.list()) >= 5 })
	stop()
	want(t, "what it did", strings.Join(made.list()[:5], ", "), "old runs, runs that miss an event, old runs, runs that miss an event, old runs")
}

// turns are what a projector has looked at.
type turns struct {
	mu     sync.Mutex
	looked []string
}

func (l *turns) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.looked)
}

func (l *turns) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch data.SQL {
	case run.Statements.Retain:
		l.looked = append(l.looked, "old runs")
	case run.Statements.Stale:
		l.looked = append(l.looked, "runs that miss an event")
	}
	return ctx
}

func (*turns) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A projector that is told to removes them by itself.
func TestProjector_KeepsRetention(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 3, false)
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{Retention: 90 * 24 * time.Hour})
	_, stop := projectingWith(t, db, p)
	// It looks once a minute, and passes over a look that meets the relay's own retention.
	if !pgtest.Wait(3*pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select to_regclass('deed.run_log_w2800') is null`)
	}) {
		t.Error("the runs did not go")
	}
	stop()
}

// oldRun is the id of the nth of the runs that old makes.
func oldRun(t *testing.T, db *pgtest.DB, n int) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select run_id::text from deed.runs where plan_id = 'p' order by run_id offset $1 limit 1`, n)
}

// signalled appends to runs that have ended, and projects it.
func signalled(t *testing.T, db *pgtest.DB, runs ...string) {
	t.Helper()
	for _, r := range runs {
		if _, err := write(t.Context(), db.Pool(pgtest.Owner), run.New{Run: r, Type: run.SignalRejected, Signal: signal(1)}); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select r.run_id, r.tenant_id, 2, now(), '{}' from deed.runs r where r.run_id = $1::text::uuid`, r)
	}
}

// Reading decides, whatever its age: a run stays while a subscription has still to read an
// event of it, though that is new, and while a message of it is put aside; the others go.
func TestContract_O11_ARunGoesWhenAllHaveReadIt(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 3, true)
	db.Exec(t, pgtest.Admin, `select deed.subscribe('deed.run_events', 'hooks', 'beginning')`)
	late := oldRun(t, db, 1)
	signalled(t, db, late)
	want(t, "while it lags", retain(t, db, 10), "deleted 2800 2")
	want(t, "then", retain(t, db, 10), "")
	want(t, "the run", status(t, db, late), "FAILED")

	sink := new(refusal)
	stop := reading(t, db, "hooks", sink)
	eventually(t, "the message to be dead", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.pending where dead_at is not null)`)
	})
	stop()
	want(t, "while a message of it is dead", retain(t, db, 10), "")
	db.Exec(t, pgtest.Admin, `select deed.discard(p.id, p_reason => 'x') from deed.pending p`)
	want(t, "when it is discarded", retain(t, db, 10), "deleted 2800 1")
	want(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(status, ',') from deed.runs`), "APPROVED")
}

// Of a subscription that lags the oldest message counts, in whichever slot it is.
func TestContract_O11_TheOldestUnreadCounts(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 20, true)
	db.Exec(t, pgtest.Admin, `select deed.subscribe('deed.run_events', 'hooks', 'beginning')`)
	for n := range 20 {
		signalled(t, db, oldRun(t, db, n))
	}
	// Of the last slot's it is long ago; by hours, as a day may have one more or less.
	first := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		with m as (update deed.log m set created_at = now() - 99 * interval '24 hours' where m.id = (select l.id from deed.log l where l.topic = $1 order by l.slot desc, l.id desc limit 1) returning m.key)
		select key from m`, run.Topic)
	steal(t, db, `select set_config('deed.act', 'run redaction', true) where $1 <> ''; update deed.run_log set persisted_at = now() - 99 * interval '24 hours' where run_id = $1::text::uuid and run_seq = 2`, first)
	want(t, "while it lags", retain(t, db, 100), "")
	for _, c := range []string{"1, true", "2, true", "5, false", "1000, true"} { // however many are counted
		want(t, "how old the oldest is, of "+c, pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select concat_ws(' ', date_trunc('day', now() - u.oldest), u.at_least) from deed.subscriptions s cross join lateral deed.count_unread(array[s.id], `+c+`) u where s.topic = 'deed.run_events'`),
			"99 days "+map[bool]string{true: "f", false: "t"}[c[:2] == "10"])
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 21)
}

// refusal is a sink that takes no message.
type refusal struct{}

func (*refusal) BatchSize() int { return 100 }

func (*refusal) Deliver(_ context.Context, ms []deed.Message) []error {
	list := make([]error, len(ms))
	for i := range list {
		list[i] = deed.Permanent(errors.New("not this one"))
	}
	return list
}

// What /readyz and the metrics look at counts weeks of runs, too: without one ahead, nobody
// gets a run when the week is over.
func TestPartitionsAhead_OfRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	week := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select floor(extract(epoch from clock_timestamp()) / 604800)::int`)
	}
	for n := 2; n >= 0; n-- {
		now := week()
		db.Exec(t, pgtest.Owner, `update deed.run_partitions set dropped_at = now() where n > $1`, now+n)
		ahead, err := upkeep.PartitionsAhead(t.Context(), db.Pool(pgtest.Worker))
		if err != nil {
			t.Fatal(err)
		}
		if over := week() - now; ahead > n || ahead < n-over { // weeks that were over meanwhile
			t.Errorf("%d are ahead, want %d", ahead, n)
		}
	}
}

// Whoever appends to a run has it: retention steps over it, and takes it only when the event
// was projected and read. Whoever comes while retention takes it is told that there is none.
func TestContract_O11_AnAppendBesideRetention(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 3, true)
	owner := db.Pool(pgtest.Owner)
	signal1 := func(r string) run.New { return run.New{Run: r, Type: run.SignalRejected, Signal: signal(1)} }
	held, taken := oldRun(t, db, 0), oldRun(t, db, 1)
	appending, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer appending.Rollback(context.Background())
	if _, err := write(t.Context(), appending, signal1(held)); err != nil {
		t.Fatal(err)
	}
	retaining, err := db.Pool(pgtest.Worker).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer retaining.Rollback(context.Background())
	want(t, "beside an append", pgtest.One[int64](t, retaining, `select runs from deed.retain_runs('90 days', 10)`), 2)
	late := make(chan error, 1)
	go func() {
		_, err := write(context.Background(), owner, signal1(taken))
		late <- err
	}()
	eventually(t, "the late one to wait", func() bool {
		return len(late) == 1 || pgtest.One[bool](t, owner, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%write_events%')`)
	})
	if err := errors.Join(retaining.Commit(t.Context()), appending.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := <-late; sqlState(err) != "DDNFD" {
		t.Errorf("an append to a run that goes: %v", err)
	}
	want(t, "before its event is projected", retain(t, db, 10), "")
	want(t, "the run that was appended to", logOf(t, db, held), "1 RunFailed, 2 SignalRejected")
	want(t, "what is left of the others", pgtest.One[int](t, owner, `select count(*) from deed.run_log where run_id <> $1::text::uuid`, held), 1)
}

// Many append to runs that have ended while retention takes them: what was answered is there,
// with its run, and nothing is left of a run that went.
func TestContract_O11_AppendsBesideRetention(t *testing.T) {
	t.Parallel()
	const ended = 60
	db := longAgo(t, ended, true)
	owner := db.NewPool(pgtest.Owner, 8)
	var ids []string
	for n := range ended {
		ids = append(ids, oldRun(t, db, n))
	}
	var answered, refused sync.Map
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := w; n < ended; n += 4 {
				r := ids[(n*7)%ended]
				switch _, err := write(t.Context(), owner, run.New{Run: r, Type: run.SignalRejected, Signal: signal(1)}); {
				case err == nil:
					answered.Store(r, true)
				case sqlState(err) == "DDNFD":
					refused.Store(r, true)
				default:
					t.Error(err)
				}
			}
		})
	}
	for range ended {
		retain(t, db, 2)
	}
	wg.Wait()
	for retain(t, db, 2) != "" {
	}
	for _, r := range ids {
		_, ok := answered.Load(r)
		_, gone := refused.Load(r)
		if there := logOf(t, db, r); ok && there != "1 RunFailed, 2 SignalRejected" || gone && there != "" || ok == gone {
			t.Errorf("answered %t, refused %t: %q", ok, gone, there)
		}
	}
	want(t, "events without a run", pgtest.One[int](t, owner, `select count(*) from deed.run_log l where not exists (select from deed.runs r where r.run_id = l.run_id)`), 0)
}
