package local_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// offered is a step of kind external as a worker gets it.
type offered struct {
	Run, Step       string
	Claim           int64
	Attempt, Engine int
	Input, Secrets  string
	Key             string
	Bounded         bool // it has a deadline, and its lease does not reach past it
}

const claimExternal = `
	select run_id::text, step_id, claim, attempt, engine_attempt, input::text, secrets::text, idempotency_key, coalesce(lease_until <= deadline, false)
	from deed.claim_external($1, $2, $3, '1 hour', p_tenant => $4::text::uuid)` // a lease that ends where the test has it end

func claims(t testing.TB, db *pgtest.DB, limit int, owner any) []offered {
	t.Helper()
	rows, err := db.Pool(pgtest.Worker).Query(t.Context(), claimExternal, "resize", "w", limit, owner)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[offered])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// take claims the next step of the queue, once it is offered.
func take(t testing.TB, db *pgtest.DB) (o offered) {
	t.Helper()
	eventually(t, "a step to be offered", func() bool {
		list := claims(t, db, 1, nil)
		if len(list) > 0 {
			o = list[0]
		}
		return len(list) > 0
	})
	return o
}

func finishExternal(t testing.TB, db *pgtest.DB, o offered, output string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Worker), `select deed.finish_external($1::text::uuid, $2, $3, $4::text::jsonb)`, o.Run, o.Step, o.Claim, output)
}

func failExternal(t testing.TB, db *pgtest.DB, o offered, code string, notDone bool) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Worker), `select deed.fail_external($1::text::uuid, $2, $3, $4, 'the text', p_not_done => $5)`, o.Run, o.Step, o.Claim, code, notDone)
}

// loseClaims has the leases of external workers run out.
func loseClaims(t testing.TB, db *pgtest.DB, more string) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = clock_timestamp() - interval '1 second', process_after = clock_timestamp() - interval '1 second'`+more+` where claim is not null and not ready`)
}

// external is a plan with a step of that kind.
func external(more string) string {
	return `{plan: p, version: "1", steps: {
		a: {kind: go, handler: a},
		ext: {kind: external, after: [a], queue: resize, with: {n: "${steps.a.output.n + 1}"}, secrets: {key: "secret://psp"}` + more + `},
		b: {kind: go, handler: b, after: [ext], with: {width: "${steps.ext.output.width}"}}}}`
}

type width struct{ Width int32 }

// externalRun is a run of such a plan, with an engine for its other steps; got is what the step after it got.
func externalRun(t testing.TB, more string) (db *pgtest.DB, id string, got *atomic.Int32) {
	t.Helper()
	db, got = pgtest.New(t), &atomic.Int32{}
	put(t, db, external(more))
	serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("a", func(context.Context, nothing) (map[string]int, error) { return map[string]int{"n": 6}, nil }),
		local.Step("b", func(_ context.Context, w width) (nothing, error) { got.Store(w.Width); return nil, nil }),
	}})
	return db, start(t, db, "r", nil), got
}

// extendExternal reports whether a step is still its worker's.
func extendExternal(t testing.TB, db *pgtest.DB, o offered) bool {
	t.Helper()
	return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select coalesce(deed.extend_external($1::text::uuid, $2, $3) > now(), false)`, o.Run, o.Step, o.Claim)
}

// A row that somebody changes while its lease is being renewed, after it was read and before it is locked, has it renewed.
func TestExtendExternal_BesideAChange(t *testing.T) {
	t.Parallel()
	db, id, got := externalRun(t, "")
	o := take(t, db)
	// As a function of the workers' it waits, when it has read a row of the steps, before it locks it.
	db.Exec(t, pgtest.Owner, `
		create function public.wait_here() returns bool language sql volatile as 'select pg_advisory_xact_lock_shared(7) is not null';
		create policy here on deed.run_steps for update to deed_worker using (public.wait_here());
		create policy here on deed.runs for update to deed_worker using (true);
		grant update on deed.run_steps, deed.runs to deed_worker;
		grant usage on schema public to deed_worker;
		alter function deed.extend_external owner to deed_worker`)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		long bool
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		a.err = db.Pool(pgtest.Worker).QueryRow(t.Context(), `select deed.extend_external($1::text::uuid, 'ext', $2, '1 hour') > now() + interval '30 minutes'`, id, o.Claim).Scan(&a.long)
		answered <- a
	}()
	eventually(t, "the renewal to have read the row", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory' and query like '%extend_external%')`)
	})
	if _, err := tx.Exec(t.Context(), `update deed.run_steps set lease_until = lease_until + interval '1 second' where run_id = $1::text::uuid and step_id = 'ext'`, id); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.err != nil || !a.long {
		t.Errorf("renewed for an hour: %t, %v", a.long, a.err)
	}
	want(t, "finished", finishExternal(t, db, o, `{"width": 80}`), "recorded")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "what the step after it got", got.Load(), 80)
}

// A worker that has as much as it takes, and so claims nothing, serves its queue all the same: who renews a lease says so, and waits for nobody to do it.
func TestExtendExternal_ServesItsQueue(t *testing.T) {
	t.Parallel()
	db, _, _ := externalRun(t, "")
	o, owner := take(t, db), db.Pool(pgtest.Owner)
	start(t, db, "second", nil)
	eventually(t, "the second to be offered", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.run_steps where queue = 'external:resize' and ready`) == 1
	})
	const its = `'external:resize' = any (queues)`
	unserved := func() int {
		return pgtest.One[int](t, owner, `select count(*) from deed.unserved_queues() where queue = 'external:resize'`)
	}
	forget := func() {
		db.Exec(t, pgtest.Owner, `update deed.run_workers set seen_until = clock_timestamp() - interval '1 second' where `+its)
	}
	forget()
	want(t, "queues that none serves, once its claim was a minute ago", unserved(), 1)
	want(t, "extended", extendExternal(t, db, o), true)
	want(t, "queues that none serves, once it has extended", unserved(), 0)
	want(t, "who serves it", pgtest.One[string](t, owner, `select string_agg(worker, ', ') from deed.run_workers where `+its), "w")

	forget()
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from deed.run_workers where `+its+` for update`); err != nil {
		t.Fatal(err)
	}
	worker := db.Conn(t, pgtest.Worker)
	if _, err := worker.Exec(t.Context(), `set lock_timeout = '10s'`); err != nil {
		t.Fatal(err)
	}
	want(t, "extended beside a row that is locked", pgtest.One[bool](t, worker, `select coalesce(deed.extend_external($1::text::uuid, $2, $3) > now(), false)`, o.Run, o.Step, o.Claim), true)
}

// Two workers whose queues' and own names come to the same when they are put one behind the other serve each its own.
func TestServeExternal_NamesWithSlashes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.claim_external('a', 'b/c'), deed.claim_external('a/b', 'c'), deed.claim_external('a', 'b/c')`)
	want(t, "who serves what", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(queues[1] || ' ' || worker, ', ' order by queues[1]) from deed.run_workers`), "external:a b/c, external:a/b c")
}

// A step of kind external is computed by an engine and done through SQL functions alone; what it returns later steps see.
func TestContract_R15_ExternalSteps(t *testing.T) {
	t.Parallel()
	db, id, got := externalRun(t, ", timeout: 10m")
	o := take(t, db)
	want(t, "the step", fmt.Sprintf("%t %s %d %d %t", o.Run == id, o.Step, o.Attempt, o.Engine, o.Bounded), "true ext 1 1 true")
	want(t, "its input", o.Input, `{"n": 7}`)
	want(t, "its secrets", o.Secrets, `{"key": "secret://psp"}`)
	want(t, "its key", o.Key, pgtest.One[string](t, db.Pool(pgtest.Worker), `select encode(deed.idempotency_key($1, 'ext', '1'), 'hex')`, id))
	want(t, "another claimer gets", len(claims(t, db, 10, nil)), 0)
	workers, err := run.Workers(t.Context(), db.Pool(pgtest.Worker))
	if err != nil || !strings.Contains(fmt.Sprint(workers), "external:resize") {
		t.Errorf("it is not said who serves the queue: %v, %v", workers, err)
	}
	another := offered{Run: id, Step: "ext", Claim: o.Claim + 1}
	want(t, "extended", extendExternal(t, db, o), true)
	want(t, "extended with another claim", extendExternal(t, db, another), false)
	has(t, logOf(t, db, id), "StepStarted ext#1")
	_, err = db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.finish_external($1::text::uuid, 'ext', $2, to_jsonb(repeat('x', 16400)))`, id, o.Claim)
	want(t, "an output that is too large", deed.CodeOf(deed.WrapError("finish", err)), deed.Invalid)
	want(t, "finished by another claim", finishExternal(t, db, another, `{}`), "lost")
	want(t, "finished", finishExternal(t, db, o, `{"width": 640}`), "recorded")
	want(t, "finished again", finishExternal(t, db, o, `{"width": 640}`), "repeated")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "what the next step got", got.Load(), int32(640))
	want(t, "finished after the run has ended", finishExternal(t, db, o, `{"width": 1}`), "repeated")
	db.Exec(t, pgtest.Admin, `select deed.redact_run($1::text::uuid, 'asked for')`, id)
	want(t, "finished again after a redaction", finishExternal(t, db, o, `{"width": 640}`), "repeated")
	want(t, "finished by another claim after a redaction", finishExternal(t, db, another, `{}`), "lost")
}

// A worker that dies, or freezes, loses its claim: the step is offered again under the same key, and the late answer counts for nothing.
func TestContract_O17_ExternalClaimsThatAreLost(t *testing.T) {
	t.Parallel()
	db, id, got := externalRun(t, "")
	first := take(t, db)
	loseClaims(t, db, "")
	second := take(t, db)
	want(t, "the engine's attempt, and the logical one", fmt.Sprint(second.Engine, second.Attempt), "2 1")
	want(t, "its key", second.Key, first.Key)
	want(t, "the first one's end", finishExternal(t, db, first, `{"width": 1}`), "lost")
	want(t, "the first one extends", extendExternal(t, db, first), false)
	want(t, "the second one's end", finishExternal(t, db, second, `{"width": 2}`), "recorded")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "what the next step got", got.Load(), int32(2))

	poison := start(t, db, "poison", nil)
	for range 10 {
		take(t, db)
		loseClaims(t, db, "")
	}
	want(t, "the run whose workers die", ended(t, db, poison), "FAILED")
	want(t, "why", errorOf(t, db, poison, "ext"), "WORKER_LOST")
}

// What must not be repeated is not, unless its worker knows that it did nothing; a person decides.
func TestContract_R5_ExternalAtMostOnce(t *testing.T) {
	t.Parallel()
	db, id, got := externalRun(t, ", guarantee: at_most_once, retry: {attempts: 3, backoff: 1ms}")
	first := take(t, db)
	want(t, "a refusal", failExternal(t, db, first, "REFUSED", true), "recorded")
	second := take(t, db)
	want(t, "the attempt after a refusal", second.Attempt, 2)
	if second.Key == first.Key {
		t.Error("a refusal was tried again under its own key: who answers a key with its first answer refuses for ever")
	}
	loseClaims(t, db, "")
	eventually(t, "a person to be asked", func() bool { return errorOf(t, db, id, "ext") == "OUTCOME_UNKNOWN" })
	want(t, "what is offered", len(claims(t, db, 10, nil)), 0)
	want(t, "the late end", finishExternal(t, db, second, `{"width": 1}`), "lost")
	db.Exec(t, pgtest.Admin, `select deed.retry_step($1::text::uuid, 'ext', 'it was not done')`, id)
	third := take(t, db)
	want(t, "the key after a person", third.Key, second.Key)
	want(t, "the end", finishExternal(t, db, third, `{"width": 3}`), "recorded")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "what the next step got", got.Load(), int32(3))
}

// Past its deadline an attempt has failed, as the plan's retry has it, under the same key; an error of a worker's as well.
func TestContract_R5_ExternalDeadlines(t *testing.T) {
	t.Parallel()
	db, id, _ := externalRun(t, ", timeout: 2h, retry: {attempts: 3, backoff: 1ms}")
	first := take(t, db)
	db.Exec(t, pgtest.Owner, `update deed.run_steps set deadline = clock_timestamp() + interval '10 minutes' where claim is not null and not ready`)
	want(t, "a lease past the deadline", pgtest.One[bool](t, db.Pool(pgtest.Worker), `
		select deed.extend_external($1::text::uuid, 'ext', $2, '1 hour') < now() + interval '30 minutes'`, id, first.Claim), true)
	loseClaims(t, db, ", deadline = clock_timestamp() - interval '1 second'")
	second := take(t, db)
	want(t, "why the first has failed", errorOf(t, db, id, "ext"), "TIMEOUT")
	want(t, "the second attempt", fmt.Sprint(second.Attempt, second.Engine), "2 1")
	want(t, "its key", second.Key, first.Key)
	want(t, "an error that may have been done", failExternal(t, db, second, "CUT", false), "recorded")
	third := take(t, db)
	want(t, "the third's key", third.Key, first.Key)
	want(t, "the last error", failExternal(t, db, third, "NO", true), "recorded")
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "ext"), "NO")
}

// Tenants share alike, one may be asked for, and nobody gets what another has; nor what is of a run that is paused or cancelled.
func TestClaimExternal_Shares(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	serve(t, db, local.Options{})
	owners := []tenant.ID{{1}, {2}}
	for i, owner := range owners {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), owner, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, pgtest.Worker, `select deed.put_plan('{"plan":"p","steps":{"ext":{"kind":"external","queue":"resize"}},"version":"1"}', p_tenant => $1::text::uuid)`, owner.String())
		db.Exec(t, pgtest.Worker, `select deed.start_run('p', '1', n::text, p_tenant => $1::text::uuid) from generate_series(1, $2::int) n`, owner.String(), []int{60, 4}[i])
	}
	eventually(t, "all to be offered", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where queue = 'external:resize' and ready`) == 64
	})
	of := func(owner tenant.ID) int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where claim is not null and tenant_id = $1::text::uuid`, owner.String())
	}
	claims(t, db, 6, nil)
	want(t, "shares of six", fmt.Sprint(of(owners[0]), of(owners[1])), "3 3")
	claims(t, db, 6, owners[1].String())
	want(t, "of the second alone", fmt.Sprint(of(owners[0]), of(owners[1])), "3 4")

	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				for _, o := range claims(t, db, 3, nil) {
					mu.Lock()
					seen[o.Run]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	want(t, "how many four claimers got", len(seen), 57)
	for id, n := range seen {
		if n != 1 {
			t.Errorf("run %s was given out %d times", id, n)
		}
	}

	paused := pgtest.One[string](t, db.Pool(pgtest.Worker), `select run_id::text from deed.start_run('p', '1', 'paused', p_tenant => $1::text::uuid)`, owners[0].String())
	eventually(t, "it to be offered", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where queue = 'external:resize' and ready`) == 1
	})
	db.Exec(t, pgtest.Owner, `select deed.write_events(array[$1]::text[]::uuid[], '{RunPaused}', '{null}', '{1}', p_signals => array[gen_random_uuid()])`, paused)
	want(t, "of a run that is paused", len(claims(t, db, 10, nil)), 0)
	db.Exec(t, pgtest.Owner, `select deed.write_events(array[$1]::text[]::uuid[], '{RunResumed}', '{null}', '{1}', p_signals => array[gen_random_uuid()])`, paused)
	db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = clock_timestamp() where run_id = $1::text::uuid`, paused)
	o := take(t, db)
	want(t, "of a run that goes on", o.Run, paused)
	if _, err := run.Cancel(t.Context(), db.Pool(pgtest.Admin), paused, audit.Act{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	want(t, "the end of a step of a run that was cancelled", finishExternal(t, db, o, `{}`), "lost")
}
