package contact_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// A few contacts among many are found by indexes, on a connection too whose plans are
// from when there were none.
func TestPlan_FewContactsAmongMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.NewPool(pgtest.App, 1)
	some := func(from string) (list []contact.Person) {
		for i := range 3 {
			list = append(list, known("email", fmt.Sprintf("%s%d@example.com", from, i), "external_id", fmt.Sprint(from, i), "telegram", fmt.Sprint(from, i)))
		}
		// These two share an identity, and not the other.
		list = append(list, known("email", from+"@example.com", "external_id", from+"a"), known("email", from+"@example.com", "external_id", from+"b"))
		for i := range list {
			list[i].Identities[0].Verified = true
		}
		return list
	}
	for _, from := range []string{"early", "early", "other"} {
		if _, err := contact.Upsert(t.Context(), pool, "test", some(from)...); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, pgtest.App, `
		select count(*)
		from deed.upsert_contacts(array(select i / 3 + 1 from generate_series(0, 14999) i), array(select (array['email', 'external_id', 'telegram'])[i % 3 + 1] from generate_series(0, 14999) i),
			array(select 'many' || i / 3 || case when i % 3 = 0 then '@example.com' else '' end from generate_series(0, 14999) i), array_fill('{}'::jsonb, array[5000]))`)
	for _, from := range []string{"late", "many", "analyzed", "early"} {
		if from == "analyzed" {
			db.Exec(t, pgtest.Owner, `analyze deed.contacts, deed.contact_identities`)
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			read := pgtest.RowsRead(t, tx)
			_, err := contact.Upsert(t.Context(), tx, "test", some(from)...)
			for table, n := range read() {
				if n > 60 {
					t.Errorf("%s: %d rows of %s were read", from, n, table)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
