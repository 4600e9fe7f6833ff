package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// spoken makes a run that has failed for a reason that somebody has put into words.
func spoken(t *testing.T, db *pgtest.DB, id string) string {
	t.Helper()
	r := running(t, db, id)
	appendAs(t, db, run.New{Run: r, Type: run.StepFailed, Step: "s", Attempt: 1, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "error": {"code": "E", "message": "canary-7"}}`)})
	decide(t, db, r, run.RunFailed)
	return r
}

// hintsOf are messages of the projector's subscription.
func hintsOf(seqs map[string]int64) (ms []deed.Message) {
	for r, seq := range seqs {
		ms = append(ms, deed.Message{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": %d}`, r, seq), CreatedAt: time.Now()})
	}
	return ms
}

// Who redacts or rebuilds a run and leaves the transaction open holds up that run's snapshots, and
// nobody else's; it is looked at again when that is over, whichever way, and nothing comes back of what
// was taken away.
func TestContract_R7_AnOpenRedactionHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := run.NewProjector(db.NewPool(pgtest.Worker, 2), run.ProjectorOptions{})
	act := audit.Act{By: "ann", Reason: "asked for"}
	redact := func(r string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { _, err := run.Redact(t.Context(), tx, r, act); return err }
	}
	bySQL := func(r string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `select deed.redact_run($1::text::uuid, 'asked for')`, r)
			return err
		}
	}
	rebuild := func(r string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { _, err := run.Rebuild(t.Context(), tx, r, false); return err }
	}
	hints, others, redacted := map[string]int64{}, []string{}, []string{}
	var open []pgx.Tx
	for name, do := range map[string]func(string) func(pgx.Tx) error{"redacted": redact, "by SQL": bySQL, "rebuilt": rebuild} {
		for _, projected := range []bool{false, true} {
			r := spoken(t, db, fmt.Sprint(name, projected))
			if projected { // some of it
				db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select r.run_id, r.tenant_id, 1, now(), '{"status": "APPROVED", "lastEventSeq": 1, "runId": "`+r+`"}' from deed.runs r where r.run_id = $1::text::uuid`, r)
			}
			tx, err := db.Pool(pgtest.Admin).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if err := do(r)(tx); err != nil {
				t.Fatal(err)
			}
			open, hints[r] = append(open, tx), 5
			if name != "rebuilt" && projected {
				redacted = append(redacted, r)
			}
		}
		others = append(others, spoken(t, db, "beside "+name))
		hints[others[len(others)-1]] = 5
	}

	// Waiting would end with the deadline that the projector has, and be an outage.
	if err := errors.Join(p.Deliver(t.Context(), hintsOf(hints))...); err != nil {
		t.Fatal(err)
	}
	for _, r := range others {
		want(t, "a run beside those that are held", lastOf(t, db, r), 5)
	}
	want(t, "runs to be looked at again", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.run_behind where seq = 5`), 6)
	if err := errors.Join(p.Deliver(t.Context(), hintsOf(hints))...); err != nil {
		t.Fatal(err)
	}
	want(t, "of each once", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.run_behind`), 6)

	for i, tx := range open { // those of which nothing was projected
		end := tx.Commit
		if i%2 == 0 {
			end = tx.Rollback
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	running, stop := context.WithCancel(t.Context())
	defer stop()
	go p.Run(running)
	for r := range hints {
		eventually(t, "the run's snapshot", func() bool { return lastOf(t, db, r) == 5 })
	}
	eventually(t, "nothing to be left to look at", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_behind`) == 0
	})
	for _, r := range redacted {
		text := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(snapshot::text, ' ') from deed.run_snapshots where run_id = $1::text::uuid`, r)
		want(t, "what was taken away is in "+text, strings.Contains(text, "canary"), false)
		want(t, "why it failed is in "+text, strings.Contains(text, `"E"`), true)
	}
}

// A run that somebody redacts by SQL, and nobody rebuilds, is projected anew by itself, and goes with
// retention as any other.
func TestContract_D12_ARunRedactedBySQLGoesOn(t *testing.T) {
	t.Parallel()
	db := longAgo(t, 2, false)
	db.Exec(t, pgtest.Admin, `select deed.redact_run(run_id, 'asked for') from deed.runs`)
	want(t, "snapshots", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots`), 0)
	want(t, "before it is projected anew", retain(t, db, 10), "")
	p := run.NewProjector(db.Pool(pgtest.Worker), run.ProjectorOptions{Retention: 90 * 24 * time.Hour})
	_, stop := projectingWith(t, db, p)
	eventually(t, "the runs to be projected", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots`) == 2
	})
	stop()
	want(t, "retention", retain(t, db, 10), "emptied 2800 2")
	db.Exec(t, pgtest.Worker, `select deed.runs_behind()`)
	want(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', (select count(*) from deed.runs), (select count(*) from deed.run_snapshots), (select count(*) from deed.run_behind))`), "0 0 0")
}

// However many runs are behind, a look brings a bounded number, and none stands before the others for ever.
func TestProjector_AListOfRunsBehindIsReadInParts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	made, err := run.Create(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	// Notes of a run that nobody projects, before and behind one of a run that is gone.
	db.Exec(t, pgtest.Owner, `insert into deed.run_behind (run_id, seq) select case when n = 2000 then gen_random_uuid() else $1::text::uuid end, n from generate_series(1, 4000) n`, made.ID)
	eventually(t, "the note of the run that is gone to go", func() bool {
		if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.runs_behind()`); n > 1 {
			t.Fatalf("%d runs in a look", n)
		}
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_behind`) == 3999
	})
	db.Exec(t, pgtest.Owner, `update deed.run_behind set run_id = gen_random_uuid()`)
	for _, left := range []int{2999, 1999, 999, 0} {
		db.Exec(t, pgtest.Worker, `select deed.runs_behind()`)
		want(t, "notes that are left", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_behind`), left)
	}
}
