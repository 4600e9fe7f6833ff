package deed_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// The faces' statements touch a bounded number of buffers among half a million
// pending, scheduled and dead messages, through one door and through several,
// on tables that were never analysed; so does a step of a redrive.
func TestPlan_Faces(t *testing.T) {
	t.Parallel()
	db := faces(t)
	sub := subscribe(t, db, "orders", "s")
	db.Exec(t, pgtest.Owner, `alter table deed.pending set (autovacuum_enabled = off); alter table deed.log_p0 set (autovacuum_enabled = off)`)
	for _, into := range []int{0, sub} {
		fill(t, db, into, 150_000, `now() + interval '1 day'`, `null`)
		fill(t, db, into, 150_000, `null`, `now()`)
		fill(t, db, into, 200_000, `null`, `null`)
	}
	conn := db.Conn(t, pgtest.Team)
	for doors := 1; doors <= 2; doors++ {
		if doors == 2 {
			db.Exec(t, pgtest.Owner, `select deed.set_door('orders', 's')`)
		}
		buffers(t, conn, `select app.outbox_claim(1, '`+tokenB+`', null)`) // the first call reads the catalogue
		buffers(t, conn, `select app.outbox_mark_delivered('`+tokenB+`', '{}')`)
		batch := list(t, conn, `select id::text from app.outbox_claim(100, '`+tokenA+`', null)`)
		events := list(t, conn, `select id::text from m10_recovery.claim_outbox_events('w', 10)`)
		for _, test := range []struct {
			q          string
			rows, most int
		}{
			// A message costs two look-ups by index and two rows, one of them changed.
			{`select * from app.outbox_claim(100, '` + tokenB + `', null)`, 100, 2200 * doors},
			{`select * from m10_recovery.claim_outbox_events('v', 100)`, 100, 2600 * doors},
			{`select app.outbox_mark_delivered('` + tokenA + `', '{` + strings.Join(batch, ",") + `}')`, 1, 2000 + 800*doors},
			{`select m10_recovery.complete_outbox_event(` + events[0] + `, 'w', true)`, 1, 80},
			{`select m10_recovery.complete_outbox_event(` + events[1] + `, 'w', false)`, 1, 80},
		} {
			got, rows := buffers(t, conn, test.q)
			t.Logf("%d doors: %6d buffers, %4d rows: %.90s", doors, got, rows, test.q)
			if got > test.most || rows != test.rows {
				t.Errorf("%d doors: %.90s\ntouched %d buffers for %d rows, want at most %d for %d", doors, test.q, got, rows, test.most, test.rows)
			}
		}
	}
	operator := db.Conn(t, pgtest.Admin)
	const redrive = `select * from deed.redrive('r', p_error => 'x')`
	buffers(t, operator, redrive) // counts them all
	if got, _ := buffers(t, operator, redrive); got > 12000 {
		t.Errorf("a step of a redrive touched %d buffers for 500 messages", got)
	} else {
		t.Logf("%d buffers for a step of a redrive", got)
	}
	if n := pgtest.One[string](t, operator, `select chosen || ' ' || redriven from deed.redrives`); n != fmt.Sprint(300_000, " ", 1000) {
		t.Errorf("chosen and redriven: %s", n)
	}
	db.Broken() // the filled rows are not what a publisher makes
}
