package contact_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

func begin(t testing.TB, db *pgtest.DB, role pgtest.Role) pgx.Tx {
	t.Helper()
	tx, err := db.Pool(role).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}

// waits calls f, which has to wait for a lock that end lets go, and returns its error.
func waits(t testing.TB, db *pgtest.DB, f func() error, end func()) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	}) {
		t.Error("it did not wait")
	}
	end()
	return <-done
}

// Who brings somebody in while they are erased gives no identity to who has been: the
// call is to be made again, and finds nobody.
func TestContract_D12_NobodyIsKnownAnewBesideIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, bring := range []contact.Person{
		known("email", "ann@example.com", "phone", "+4930555001"), // something new
		{Identities: known("email", "ann@example.com").Identities, Data: []byte(`{"note": "canary"}`)},
	} {
		of := upsert(t, db, known("email", "ann@example.com"))[0].ID
		erasing := begin(t, db, pgtest.App)
		if _, err := contact.Erase(t.Context(), erasing, nil, of, audit.Act{By: "ann", Reason: "asked to"}, contact.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
		err := waits(t, db, func() error {
			_, err := contact.Upsert(t.Context(), db.NewPool(pgtest.App, 1), "import", bring)
			return err
		}, func() {
			if err := erasing.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if !isRetry(err) {
			t.Errorf("brought in beside the erasure: %v", err)
		}
		if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `
			select count(*) from deed.contacts c left join deed.contact_identities i on i.contact_id = c.id
			where c.erased_at is not null and (c.data <> '{}' or i.contact_id is not null)`); n > 0 {
			t.Errorf("%d erased contacts are somebody again", n)
		}
		if got := upsert(t, db, bring)[0]; got.Outcome != contact.Created || got.ID == of {
			t.Errorf("made again: %+v", got)
		}
		db.Exec(t, pgtest.Owner, `delete from deed.contact_identities`)
	}
}

// An erasure locks a contact and its aliases in the order of ids, as merging and
// importing do, so that none of them ends another as a deadlock.
func TestErase_LocksInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := upsert(t, db, known("email", "one@example.com"), known("email", "two@example.com"))
	ids := []string{list[0].ID, list[1].ID}
	slices.Sort(ids)
	alias, root := ids[0], ids[1]
	if _, err := contact.Merge(t.Context(), db.Pool(pgtest.App), nil, alias, root, audit.Act{Reason: "one person"}); err != nil {
		t.Fatal(err)
	}
	other := begin(t, db, pgtest.Owner)
	lock := func(id string) error {
		_, err := other.Exec(t.Context(), `select from deed.contacts where id = $1::text::uuid for no key update`, id)
		return err
	}
	if err := lock(alias); err != nil {
		t.Fatal(err)
	}
	err := waits(t, db, func() error {
		_, err := contact.Erase(t.Context(), db.NewPool(pgtest.App, 1), nil, root, audit.Act{Reason: "asked to"}, contact.EraseOptions{})
		return err
	}, func() {
		if err := errors.Join(lock(root), other.Commit(t.Context())); err != nil {
			t.Errorf("who had locked first: %v", err)
		}
	})
	if err != nil && !strings.Contains(fmt.Sprint(err), "40001") {
		t.Errorf("erased: %v", err)
	}
}
