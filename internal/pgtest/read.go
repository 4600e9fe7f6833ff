package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// RowsRead returns what says how many rows of each of deed's tables a transaction has
// read since, by indexes or whole; of those of which it has read any.
func RowsRead(t testing.TB, tx pgx.Tx) func() map[string]int64 {
	t.Helper()
	read := func() map[string]int64 {
		t.Helper()
		rows, err := tx.Query(context.Background(), `
			select relname::text, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
			from pg_stat_xact_all_tables
			where schemaname = 'deed'`)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]int64{}
		var table string
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&table, &n}, func() error { list[table] = n; return nil }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := read()
	return func() map[string]int64 {
		t.Helper()
		list := map[string]int64{}
		for table, n := range read() {
			if n > before[table] {
				list[table] = n - before[table]
			}
		}
		return list
	}
}
