package importer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// An import waits for an erasure that is left open, says so, and of what line; meanwhile it holds
// up nobody else of its file. Once the erasure has ended everybody is there: who was erased is
// somebody new.
func TestUpsert_AnErasureLeftOpen(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits %t", commits), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			const lines = 20
			var file strings.Builder
			var persons []contact.Person
			for i := range lines {
				fmt.Fprintf(&file, "{\"external_id\": \"c%d\", \"data\": {\"a\": 1}}\n", i+1)
				persons = append(persons, contact.Person{Identities: []contact.Identity{{Type: "external_id", Value: fmt.Sprintf("c%d", i+1)}}})
			}
			list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", persons...)
			if err != nil {
				t.Fatal(err)
			}
			open, err := db.NewPool(pgtest.App, 1).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = open.Rollback(context.Background()) })
			if _, err := contact.Erase(t.Context(), open, nil, list[6].ID, audit.Act{By: "test", Reason: "asked for"}, contact.EraseOptions{}); err != nil {
				t.Fatal(err)
			}
			rows, err := NewContacts(strings.NewReader(file.String()), "-", ContactOptions{Format: "ndjson"})
			if err != nil {
				t.Fatal(err)
			}
			alone := make(chan struct{})
			ended := false
			done := make(chan struct{})
			var tally ContactTally
			go func() {
				defer close(done)
				tally, err = Upsert(t.Context(), db.Pool(pgtest.App), rows, UpsertOptions{By: "test", Waiting: func(first, last int) {
					if first > 7 || last < 7 {
						t.Errorf("waits for lines %d to %d", first, last)
					}
					if first == last && !ended {
						ended = true
						close(alone)
					}
				}})
			}()
			select {
			case <-alone:
			case <-done:
				t.Fatalf("it has not waited: %+v, %v", tally, err)
			}
			// Those before it are stored, and nobody of the others is locked.
			tx, txErr := db.Pool(pgtest.Owner).Begin(t.Context())
			if txErr != nil {
				t.Fatal(txErr)
			}
			var stored, free int
			if err := tx.QueryRow(t.Context(), `select count(*) filter (where data <> '{}'), count(*) from (select data from deed.contacts for update skip locked) c`).Scan(&stored, &free); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if stored != 6 || free != lines-1 {
				t.Errorf("while it waits: %d stored, %d not locked", stored, free)
			}
			end := open.Rollback
			if commits {
				end = open.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-done
			want := ContactTally{Updated: lines, NextLine: lines + 1}
			if commits {
				want.Updated, want.Created = lines-1, 1
			}
			if err != nil || tally != want {
				t.Errorf("in the end: %+v, %v, want %+v", tally, err, want)
			}
		})
	}
}

// An erasure that ends while an import waits for it ends no import.
func TestUpsert_AnErasureMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	persons := []contact.Person{{Identities: []contact.Identity{{Type: "external_id", Value: "a"}}}, {Identities: []contact.Identity{{Type: "external_id", Value: "b"}}}}
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", persons...)
	if err != nil {
		t.Fatal(err)
	}
	open, err := db.NewPool(pgtest.App, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Rollback(context.Background()) })
	if _, err := contact.Erase(t.Context(), open, nil, list[0].ID, audit.Act{By: "test", Reason: "asked for"}, contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	rows, err := NewContacts(strings.NewReader("external_id,email\na,a@example.com\nb,\n"), "a.csv", ContactOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var tally ContactTally
	done := make(chan struct{})
	go func() {
		defer close(done)
		tally, err = Upsert(t.Context(), db.Pool(pgtest.App), rows, UpsertOptions{By: "test"})
	}()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.datname = current_database() and not l.granted)`)
	}) {
		t.Error("it has not waited")
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	if want := (ContactTally{Created: 1, Unchanged: 1, NextLine: 4}); err != nil || tally != want {
		t.Errorf("%+v, %v, want %+v", tally, err, want)
	}
}
