package run_test

import (
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// A run that is cancelled while one of its steps is being claimed has no step any more: the cancellation has waited for the
// claim, and takes away the row that it has left.
func TestCancel_BesideAClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"load": {"kind": "sleep"}}}')`)
	r, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Pool(pgtest.Worker).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if tag, err := tx.Exec(t.Context(), `select from deed.claim_steps('{deed}', 'w', 1)`); err != nil || tag.RowsAffected() != 1 {
		t.Fatal(tag, err)
	}
	cancelled := make(chan error, 1)
	go func() {
		_, err := run.Cancel(t.Context(), db.Pool(pgtest.Admin), r.ID, audit.Act{Reason: "it was withdrawn"})
		cancelled <- err
	}()
	eventually(t, "the cancellation waits", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%stop_run%')`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-cancelled; err != nil {
		t.Fatal(err)
	}
	want(t, "steps by which it goes on", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps`), 0)
	want(t, "the log", logOf(t, db, r.ID), "1 RunApproved, 2 RunStarted, 3 RunCancelled")
}
