package deed_test

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A stream that has no subscription owes its messages to nobody: they go when
// its retention is over, and deed.verify misses none of them.
func TestContract_O11_WhatNobodyIsOwedGoes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('unread', 'stream'), deed.declare_topic('waiting')`)
	publish(t, db, message("unread", 1), message("unread", 2), message("waiting", 3))
	nextDay(t, db)
	verified(t, db)
	same(t, "steps while all is young", retain(t, db, pgtest.Worker), []string{})
	older(t, db)
	// A queue's are kept for whoever comes, as those of a topic that nobody declared.
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 1", "0 emptied 0", "0 dropped 0"})
	same(t, "messages that are left", pgtest.One[[]string](t, db.Pool(pgtest.Owner), `select array_agg(topic) from deed.kept`), []string{"waiting"})
	verified(t, db)
}

// verified checks the store.
func verified(t testing.TB, db *pgtest.DB) {
	t.Helper()
	found := pgtest.One[[]string](t, db.Pool(pgtest.Worker), `
		select coalesce(array_agg(v.invariant || ': ' || coalesce(v.subscription, '') || ' ' || coalesce(v.message_id, 0) || ' ' || v.detail), '{}') from deed.verify() v`)
	for _, f := range found {
		t.Error(f)
	}
}
