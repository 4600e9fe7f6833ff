package contact_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A contact is found by its id and by what it is known as, its own or that of one that
// was merged into it; nobody's value is repeated where it is not.
func TestFind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(pgtest.App)
	list := upsert(t, db, known("email", "a@example.com"), known("phone", "+4930123456"), known("slack", "T1:U1"))
	a, b, c := list[0].ID, list[1].ID, list[2].ID
	merge(t, db, a, b)
	merge(t, db, c, a)
	for ref, want := range map[string]string{a: a, b: b, "email:A@Example.com": b, "phone:+49 30 123456": b, "slack:T1:U1": b} {
		got, err := contact.Find(t.Context(), pool, nil, ref)
		if err != nil || got.ID != want {
			t.Errorf("%s: %s, %v; want %s", ref, got.ID, err, want)
		}
	}
	aliases, err := contact.Aliases(t.Context(), pool, b)
	same(t, "no error", err, nil)
	names := map[string]string{}
	for _, alias := range aliases {
		same(t, "merged into", alias.MergedInto, b)
		names[alias.ID] = alias.Identities[0].Value
	}
	same(t, "aliases", names, map[string]string{a: "a@example.com", c: "T1:U1"})
	other := tenant.ID{1}
	for _, bad := range []struct {
		owner *tenant.ID
		ref   string
		want  error
	}{
		{nil, "bob@example.com", contact.ErrInvalid},
		{nil, "email:bob", contact.ErrInvalid},
		{nil, "Mail:bob@example.com", contact.ErrInvalid},
		{nil, "email:bob@example.com", contact.ErrNotFound},
		{nil, "00000000-0000-4000-8000-0000000000b0", contact.ErrNotFound},
		{&other, a, contact.ErrNotFound},
		{&other, "email:a@example.com", contact.ErrNotFound},
	} {
		_, err := contact.Find(t.Context(), db.Pool(pgtest.Admin), bad.owner, bad.ref)
		if !errors.Is(err, bad.want) || strings.Contains(err.Error(), "bob") {
			t.Errorf("%s: %v, want %v", bad.ref, err, bad.want)
		}
	}
}

// Conflicts come in pages, newest first; those that are settled if they are asked for,
// and those of one contact under any of its names.
func TestConflicts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(pgtest.App)
	var ids []string
	for _, u := range upsert(t, db, known("external_id", "1"), known("slack", "1"), known("telegram", "1"), known("whatsapp", "+4930123456")) {
		ids = append(ids, u.ID)
	}
	upsert(t, db, known("external_id", "1", "slack", "1"), known("external_id", "1", "telegram", "1"), known("telegram", "1", "whatsapp", "+4930123456"))
	upsert(t, db, known("slack", "1", "external_id", "1"))

	f := contact.ConflictFilter{Limit: 2}
	var got []contact.Conflict
	for more := true; more; more = f.Cursor != "" {
		list, err := contact.Conflicts(t.Context(), pool, f)
		if err != nil || len(list.Items) > 2 {
			t.Fatal(list, err)
		}
		got, f.Cursor = append(got, list.Items...), list.Next
	}
	type brief struct {
		contacts, types []string
		times           int
	}
	var briefs []brief
	for i, c := range got {
		briefs = append(briefs, brief{c.Contacts, c.Types, c.Times})
		if c.SettledAt != nil || c.Actor != "test" || c.At.IsZero() || i > 0 && c.N >= got[i-1].N {
			t.Errorf("%+v", c)
		}
	}
	if len(briefs) != 3 {
		t.Fatal(briefs)
	}
	times := map[string]int{}
	for _, b := range briefs {
		times[fmt.Sprint(b.types)] = b.times
	}
	same(t, "how often", times, map[string]int{"[external_id slack]": 2, "[external_id telegram]": 1, "[telegram whatsapp]": 1})

	count := func(what string, f contact.ConflictFilter, want int) {
		t.Helper()
		list, err := contact.Conflicts(t.Context(), pool, f)
		if err != nil || len(list.Items) != want {
			t.Errorf("%s: %+v, %v; want %d", what, list.Items, err, want)
		}
	}
	count("of one", contact.ConflictFilter{Contact: ids[1]}, 1)
	merge(t, db, ids[0], ids[1])
	count("open", contact.ConflictFilter{}, 2)
	count("all", contact.ConflictFilter{Settled: true}, 3)
	count("of one, by its alias", contact.ConflictFilter{Contact: ids[1]}, 1)
	count("settled, of one", contact.ConflictFilter{Contact: ids[1], Settled: true}, 2)
	count("another tenant's", contact.ConflictFilter{Tenant: &tenant.ID{1}}, 0)
	for _, f := range []contact.ConflictFilter{{Limit: -1}, {Cursor: "x"}, {Contact: "x"}} {
		if _, err := contact.Conflicts(t.Context(), pool, f); !errors.Is(err, contact.ErrInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
