package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// What a dump says of a check constraint is the same constraint when it is read again, so
// that a restored installation is as it should be (doctor's schema-drift). An expression
// that begins with "x between a and b and …" is another one.
func TestChecks_AreReadAsADumpWritesThem(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	rows, err := tx.Query(t.Context(), `
		select conname, conrelid::regclass::text, pg_get_constraintdef(oid)
		from pg_constraint
		where contype = 'c' and connamespace = 'deed'::regnamespace and conrelid <> 0 and coninhcount = 0`)
	if err != nil {
		t.Fatal(err)
	}
	type check struct{ Name, Table, Is string }
	checks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[check])
	if err != nil || len(checks) == 0 {
		t.Fatal(len(checks), err)
	}
	for _, c := range checks {
		if _, err := tx.Exec(t.Context(), `alter table `+c.Table+` add constraint read_again `+c.Is); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		var again string
		if err := tx.QueryRow(t.Context(), `select pg_get_constraintdef(oid) from pg_constraint where conname = 'read_again' and conrelid = $1::regclass`, c.Table).Scan(&again); err != nil {
			t.Fatal(err)
		}
		if again != c.Is {
			t.Errorf("%s of %s\nis          %s\nread again  %s", c.Name, c.Table, c.Is, again)
		}
		if _, err := tx.Exec(t.Context(), `alter table `+c.Table+` drop constraint read_again`); err != nil {
			t.Fatal(err)
		}
	}
}
