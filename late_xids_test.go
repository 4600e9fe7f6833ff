package deed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// What lies between two windows costs what it has in the log, not what it took
// of transaction ids: a transaction of a hundred thousand savepoints takes as
// many. Nor does it cost what a transaction that still runs has published.
func TestPlan_WindowsCostTheRowsNotTheTransactionIDs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('orders', 'stream')`)
	sub := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 's')`)
	owner := db.Conn(t, pgtest.Owner)
	begun := pgtest.One[string](t, owner, `select pg_current_xact_id()::text`)
	var late []string
	for range 3 {
		late = append(late, pgtest.One[string](t, db.Pool(pgtest.App), `select pg_current_xact_id()::text from deed.publish('orders', '{}')`))
	}
	running := openTx(t, db, pgtest.App, `select deed.publish('orders', '{}') from generate_series(1, 3000)`)
	if _, err := owner.Exec(ctx, `
		create temporary table saved (n int);
		do $$
		begin
		  for i in 1..100000 loop
		    begin
		      insert into saved values (i);
		    exception when division_by_zero then null;
		    end;
		  end loop;
		end $$`); err != nil {
		t.Fatal(err)
	}
	// As if all of them had been running, and none listed, when the window was opened.
	from := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.open_window()`)
	db.Exec(t, pgtest.Owner, fmt.Sprintf(`update deed.windows set cur = '%s:%[1]s:' where n = %d`, begun, from))
	to := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.open_window()`)
	h := func(n int64) string {
		return pgtest.One[string](t, owner, `select h::text from deed.windows where n = $1`, n)
	}
	if gap := pgtest.One[int64](t, owner, `select h::text::bigint - pg_snapshot_xmax(cur)::text::bigint from deed.windows where n = $1`, from); gap < 100_000 {
		t.Fatalf("only %d transaction ids passed", gap)
	}
	got := pgtest.One[[]string](t, owner, `select xids::text[] from deed.window_late($1, $2::text::xid8, $3, $4::text::xid8)`, from, h(from), to, h(to))
	for _, xid := range late {
		if !slices.Contains(got, xid) {
			t.Errorf("transaction %s is not among %v", xid, got)
		}
	}
	for what, q := range map[string]string{
		"deed.window_late": fmt.Sprintf(`select deed.window_late(%d, '%s'::xid8, %d, '%s'::xid8)`, from, h(from), to, h(to)),
		"deed.watch":       fmt.Sprintf(`select window_n from deed.watch(null, '{%d}', '{-infinity}', %d, '%s'::xid8)`, sub, from, h(from)),
	} {
		if touched := pgtest.Measure(t, owner, 1500, q).Buffers; touched > 1500 {
			t.Errorf("%s touches %d buffers", what, touched)
		} else {
			t.Logf("%s touches %d buffers", what, touched)
		}
	}
	// With nothing published since the last window, only what ran then matters.
	db.Exec(t, pgtest.Owner, fmt.Sprintf(`update deed.windows set cur = '%s:%[1]s:' where n = (select max(n) from deed.windows)`, begun))
	db.Exec(t, pgtest.Owner, `delete from deed.log where xid = any ($1::text[]::xid8[])`, late)
	if touched := pgtest.Measure(t, owner, 1500, fmt.Sprintf(`select window_n from deed.watch(null, '{%d}', '{-infinity}', %d, '%s'::xid8)`, sub, to, h(to))).Buffers; touched > 1500 {
		t.Errorf("deed.watch touches %d buffers when nothing has come", touched)
	}
	if err := running.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	db.Broken()
}
