package contact_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

var why = audit.Act{By: "ann", Reason: "the same person"}

func merge(t testing.TB, db *pgtest.DB, from, into string) bool {
	t.Helper()
	merged, err := contact.Merge(t.Context(), db.Pool(pgtest.App), nil, from, into, why)
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func knownAs(t testing.TB, db *pgtest.DB, typ, value string) string {
	t.Helper()
	id, err := contact.KnownAs(t.Context(), db.Pool(pgtest.App), tenant.Default, contact.Identity{Type: typ, Value: value})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A merged contact is another name of the one it was merged into, through any number
// of merges; what is known of it is known of that one; and taken apart all is as it was,
// but for what came since.
func TestMerge_AndUnmerge(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(pgtest.App)
	list := upsert(t, db, known("email", "a@example.com"), known("phone", "+4930123456"), known("slack", "U1"))
	a, b, c := list[0].ID, list[1].ID, list[2].ID
	at := func(what, wantA, wantB, wantC string) {
		t.Helper()
		same(t, what, []string{knownAs(t, db, "email", "A@example.com"), knownAs(t, db, "phone", "+49 30 123456"), knownAs(t, db, "slack", "U1")}, []string{wantA, wantB, wantC})
	}
	at("at first", a, b, c)
	same(t, "a conflict", outcomes(upsert(t, db, known("email", "a@example.com", "slack", "U1"))), []contact.Outcome{contact.Conflicting})
	same(t, "merged", merge(t, db, a, b), true)
	same(t, "again", merge(t, db, a, b), false)
	same(t, "the other way round", merge(t, db, b, a), false)
	at("a into b", b, b, c)
	same(t, "merged", merge(t, db, a, c), true) // b, that is
	at("all into c", c, c, c)
	same(t, "conflicts", pgtest.One[int](t, db.Pool(pgtest.Admin), `select count(*) from deed.identity_conflicts where settled_at is null`), 0)
	got := upsert(t, db, known("email", "a@example.com", "telegram", "42"))
	same(t, "what is known of all", got, []contact.Upserted{{ID: c, Outcome: contact.Updated}})

	into, err := contact.Unmerge(t.Context(), pool, nil, b, why)
	same(t, "taken from", into, c)
	same(t, "no error", err, nil)
	at("b is two again", b, b, c)
	same(t, "what came since", knownAs(t, db, "telegram", "42"), c)
	into, err = contact.Unmerge(t.Context(), pool, nil, a, why)
	same(t, "taken from", into, b)
	same(t, "no error", err, nil)
	at("as at first", a, b, c)
	for what, err := range map[string]error{
		"unmerged again":  second(contact.Unmerge(t.Context(), pool, nil, a, why)),
		"without a cause": second(contact.Merge(t.Context(), pool, nil, a, b, audit.Act{By: "x"})),
		"nobody":          second(contact.Merge(t.Context(), pool, nil, a, "00000000-0000-4000-8000-000000000001", why)),
		"no id":           second(contact.Merge(t.Context(), pool, nil, "a", b, why)),
	} {
		want := map[string]error{"unmerged again": contact.ErrConflict, "nobody": contact.ErrNotFound, "without a cause": contact.ErrInvalid, "no id": contact.ErrInvalid}[what]
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	same(t, "acts", pgtest.One[string](t, db.Pool(pgtest.Admin), `select string_agg(action, ' ' order by n) from deed.audit_log where subject_type = 'contact' and action <> 'upsert'`), "merge merge merge merge unmerge unmerge unmerge unmerge")
}

func second[T any](_ T, err error) error { return err }

// Merges and their undoing at once, of few contacts in all directions: no circle, no
// two names of one, and all are taken apart in the end.
func TestMerge_Races(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(pgtest.App)
	var persons []contact.Person
	for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
		persons = append(persons, known("external_id", n))
	}
	list := upsert(t, db, persons...)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 60 {
				a, b := list[rand.IntN(6)].ID, list[rand.IntN(6)].ID
				var err error
				if rand.IntN(3) > 0 {
					_, err = contact.Merge(t.Context(), pool, nil, a, b, why)
				} else {
					_, err = contact.Unmerge(t.Context(), pool, nil, a, why)
				}
				if err != nil && !errors.Is(err, contact.ErrConflict) && !isRetry(err) {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	for range 6 {
		for _, u := range list {
			if _, err := contact.Unmerge(t.Context(), pool, nil, u.ID, why); err != nil && !errors.Is(err, contact.ErrConflict) {
				t.Error(err)
			}
		}
	}
	for i, u := range list {
		same(t, "known as before", knownAs(t, db, "external_id", persons[i].Identities[0].Value), u.ID)
	}
	same(t, "merges that stand", pgtest.One[int](t, db.Pool(pgtest.Admin), `select count(*) from deed.contact_merges where undone_at is null`), 0)
}
