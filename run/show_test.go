package run_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

func TestStatements_FitTheSchema(t *testing.T) {
	t.Parallel()
	if err := sqlfile.Check(t.Context(), pgtest.New(t).Conn(t, pgtest.Worker), run.Statements); err != nil {
		t.Error(err)
	}
}

// A look at a run is never behind: it applies what came after the newest snapshot, and
// nothing else of the log.
func TestContract_R6_ShowIsNeverBehind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	r := make1(t, db, "a")
	fresh, err := run.Show(t.Context(), app, r, 0)
	if err != nil || fresh.Snapshot.Status != run.Pending || fresh.Snapshot.RunID != r {
		t.Errorf("before the first event: %+v, %v", fresh, err)
	}
	decide(t, db, r, run.RunApproved, run.RunStarted)
	var events []run.New
	for n := range 1200 { // more than is read at once
		events = append(events, run.New{Run: r, Type: run.StepCompleted, Step: fmt.Sprint("s", n), Attempt: 1, Data: begun})
	}
	appendAs(t, db, events...)
	whole, err := run.Show(t.Context(), app, r, 0)
	if err != nil || whole.Snapshot.LastEventSeq != 2402 || len(whole.Snapshot.Steps) != 1200 {
		t.Fatalf("%d events, %d steps, %v", whole.Snapshot.LastEventSeq, len(whole.Snapshot.Steps), err)
	}
	at, err := run.Show(t.Context(), app, r, 2000)
	if err != nil || at.Snapshot.LastEventSeq != 2000 {
		t.Fatalf("as it was: %d, %v", at.Snapshot.LastEventSeq, err)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) values ($1::text::uuid, $2::text::uuid, 2000, now(), $3::text::jsonb)`,
		r, tenant.ID{}.String(), text(t, at.Snapshot))
	again, err := run.Show(t.Context(), app, r, 0)
	if err != nil || text(t, again.Snapshot) != text(t, whole.Snapshot) {
		t.Errorf("over a snapshot: %v", err)
	}
	if _, err := run.Show(t.Context(), app, r, -1); deed.CodeOf(err) != deed.Invalid { // of a long run, it was looked for without end
		t.Errorf("after event -1: %v", err)
	}
	for _, seq := range []int64{1, 1999, 2000, 2001, 2402} {
		if s, err := run.Show(t.Context(), app, r, seq); err != nil || s.Snapshot.LastEventSeq != seq {
			t.Errorf("after event %d: %d, %v", seq, s.Snapshot.LastEventSeq, err)
		}
	}
	if _, err := run.Show(t.Context(), app, r, 2403); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("after an event that there is not: %v", err)
	}
	if _, err := run.Show(t.Context(), app, "x", 0); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("no id: %v", err)
	}
	if _, err := run.Show(t.Context(), app, "00000000-0000-7000-8000-000000000000", 0); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("no run: %v", err)
	}
	// A damaged log is no run.
	db.Broken()
	if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Owner), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `set local deed.act = 'run retention'; delete from deed.run_log where run_seq = 2200`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int64{0, 2200, 2201} {
		if _, err := run.Show(t.Context(), app, r, seq); !isGap(err, 2200, 2201) {
			t.Errorf("a gap, after event %d: %v", seq, err)
		}
	}
	for _, seq := range []int64{2000, 2100, 2199} {
		if s, err := run.Show(t.Context(), app, r, seq); err != nil || s.Snapshot.LastEventSeq != seq {
			t.Errorf("before a gap, after event %d: %d, %v", seq, s.Snapshot.LastEventSeq, err)
		}
	}
}

func isGap(err error, expected, got int64) bool {
	gap, ok := errors.AsType[*run.GapError](err)
	return ok && gap.Expected == expected && gap.Got == got
}

// Lists go on by key, and each tenant's shows its own.
func TestList(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.ID{0xb}, "b"); err != nil {
		t.Fatal(err)
	}
	worker := db.Pool(pgtest.Worker)
	var all []string
	for n := range 7 {
		owner := tenant.ID{}
		if n == 6 {
			owner = tenant.ID{0xb}
		}
		made, err := run.CreateFor(t.Context(), worker, owner, run.Request{Plan: fmt.Sprint("p", n%2), Version: "1", ID: fmt.Sprint(n), Project: "etl", Environment: []string{"prod", "test"}[n%2]})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, made.ID)
	}
	decide(t, db, all[0], run.RunApproved, run.RunStarted)
	decide(t, db, all[1], run.RunFailed)
	db.Exec(t, pgtest.Owner, `insert into deed.run_stale (run_id, tenant_id, since, expected_seq, got_seq) values ($1::text::uuid, $2::text::uuid, now(), 2, 3)`, all[2], tenant.ID{}.String())
	b := tenant.ID{0xb}
	for what, c := range map[string]struct {
		f run.Filter
		n int
	}{
		"all":               {run.Filter{}, 7},
		"by status":         {run.Filter{Status: run.Pending}, 5},
		"that failed":       {run.Filter{Status: run.Failed}, 1},
		"of a plan":         {run.Filter{Plan: "p1"}, 3},
		"of a project":      {run.Filter{Project: "x"}, 0},
		"of an environment": {run.Filter{Environment: "prod"}, 4},
		"stale":             {run.Filter{Stale: true}, 1},
		"since":             {run.Filter{Since: time.Hour}, 7},
		"of a tenant":       {run.Filter{Tenant: &b}, 1},
	} {
		list, err := run.List(t.Context(), worker, c.f)
		if err != nil || len(list.Items) != c.n {
			t.Errorf("%s: %d, %v, want %d", what, len(list.Items), err, c.n)
		}
	}
	var seen int
	for f := (run.Filter{Limit: 3}); ; {
		list, err := run.List(t.Context(), worker, f)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(list.Items)
		if f.Cursor = list.Next; f.Cursor == "" {
			break
		}
	}
	want(t, "page by page", seen, 7)
	for _, f := range []run.Filter{{Limit: -1}, {Cursor: "x"}, {Status: "ODD"}, {Since: -time.Hour}} {
		if _, err := run.List(t.Context(), worker, f); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", f, err)
		}
	}
	// The application of one tenant sees its own run, and its events.
	if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(t.Context(), tx, b); err != nil {
			return err
		}
		list, err := run.List(t.Context(), tx, run.Filter{})
		if err != nil || len(list.Items) != 1 || list.Items[0].ID != all[6] {
			t.Errorf("b sees %+v, %v", list, err)
		}
		events, err := run.Events(t.Context(), tx, all[0], 0, 10)
		if err != nil || len(events) != 0 {
			t.Errorf("b sees events %+v, %v", events, err)
		}
		_, err = run.Show(t.Context(), tx, all[0], 0)
		if deed.CodeOf(err) != deed.NotFound {
			t.Errorf("b sees a run: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
