package contact_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func known(pairs ...string) contact.Person {
	var p contact.Person
	for i := 0; i < len(pairs); i += 2 {
		p.Identities = append(p.Identities, contact.Identity{Type: pairs[i], Value: pairs[i+1]})
	}
	return p
}

func upsert(t testing.TB, db *pgtest.DB, persons ...contact.Person) []contact.Upserted {
	t.Helper()
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", persons...)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func outcomes(list []contact.Upserted) (out []contact.Outcome) {
	for _, u := range list {
		out = append(out, u.Outcome)
	}
	return out
}

// isRetry reports whether the call is to be made again.
func isRetry(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "40001"
}
