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
		pgtest.Measure(t, conn, pgtest.Any, `select app.outbox_claim(1, '`+tokenB+`', null)`) // the first call reads the catalogue
		pgtest.Measure(t, conn, pgtest.Any, `select app.outbox_mark_delivered('`+tokenB+`', '{}')`)
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
			c := pgtest.Measure(t, conn, test.most, test.q)
			t.Logf("%d doors: %6d buffers, %4d rows: %.90s", doors, c.Buffers, c.Rows, test.q)
			if c.Buffers > test.most || c.Rows != test.rows {
				t.Errorf("%d doors: %.90s\ntouched %d buffers for %d rows, want at most %d for %d", doors, test.q, c.Buffers, c.Rows, test.most, test.rows)
			}
		}
	}
	operator := db.Conn(t, pgtest.Admin)
	const redrive = `select * from deed.redrive('r', p_error => 'x')`
	pgtest.Measure(t, operator, pgtest.Any, redrive) // counts them all
	if got := pgtest.Measure(t, operator, 12000, redrive).Buffers; got > 12000 {
		t.Errorf("a step of a redrive touched %d buffers for 500 messages", got)
	} else {
		t.Logf("%d buffers for a step of a redrive", got)
	}
	if n := pgtest.One[string](t, operator, `select chosen || ' ' || redriven from deed.redrives`); n != fmt.Sprint(300_000, " ", 1000) {
		t.Errorf("chosen and redriven: %s", n)
	}
	db.Broken() // the filled rows are not what a publisher makes
}

// What the seeds look up through the relations is bounded among 150,000 that
// wait and 50,000 that are finished: a token's own messages, which seed 004 had
// an index for, and, on tables that autovacuum has seen, the oldest of seed 003's
// selection rule.
func TestPlan_FacesRelations(t *testing.T) {
	t.Parallel()
	db := faces(t)
	subscribe(t, db, "orders", "s")
	for _, table := range []string{"pending", "log_p0", "receipts", "door_claims"} {
		db.Exec(t, pgtest.Owner, `alter table deed.`+table+` set (autovacuum_enabled = off)`)
	}
	fill(t, db, 0, 50_000, `null`, `null`)
	for range 100 { // receipts of five hundred
		db.Exec(t, pgtest.Worker, `select deed.finish(0, claim, ids) from (select claim, array_agg(id) as ids from deed.claim(null, 'w', 500) group by claim) c`)
	}
	fill(t, db, 0, 150_000, `null`, `null`)
	conn := db.Conn(t, pgtest.Team)
	mine := list(t, conn, `select id::text from app.outbox_claim(100, '`+tokenA+`', null)`)
	list(t, conn, `select id::text from app.outbox_claim(100, '`+tokenB+`', null)`)
	list(t, conn, `select id::text from m10_recovery.claim_outbox_events('w', 100)`)
	const rule = ` where processed_at is null and (process_after is null or process_after <= now())
		and (claimed_at is null or claimed_at < now() - interval '5 minutes')`
	for _, analysed := range []bool{false, true} {
		if analysed {
			db.Exec(t, pgtest.Owner, `vacuum (analyze) deed.pending, deed.log, deed.receipts, deed.door_claims`)
		}
		for _, test := range []struct {
			q          string
			rows, most int
		}{
			{`select id from public.outbox where processing_token = '` + tokenA + `'`, 100, 2000},
			{`select id from public.outbox where processing_token = '00000000-0000-4000-8000-000000000000'`, 0, 100},
			{`select id from m10_recovery.outbox` + rule + ` order by id limit 10`, 10, 800},
			{`select * from m10_recovery.outbox` + rule + ` order by id limit 100`, 100, 1500},
			{`select id from m10_recovery.outbox` + rule + ` limit 10`, 10, 3000},
		} {
			if !analysed && strings.Contains(test.q, "m10_recovery") {
				continue
			}
			c := pgtest.Measure(t, conn, test.most, test.q)
			t.Logf("analysed %v: %6d buffers, %4d rows: %.100s", analysed, c.Buffers, c.Rows, test.q)
			if c.Buffers > test.most || c.Rows != test.rows {
				t.Errorf("analysed %v: %.100s\ntouched %d buffers for %d rows, want at most %d for %d", analysed, test.q, c.Buffers, c.Rows, test.most, test.rows)
			}
		}
	}
	if got := list(t, conn, `select id::text from public.outbox where processing_token = '`+tokenA+`' order by 1`); len(got) != len(mine) {
		t.Errorf("the token finds %d, it has claimed %d", len(got), len(mine))
	}
	// Others' workers have a token that is nobody's; all that wait are there once.
	if got := list(t, conn, `select processing_token || ' ' || count(*) from public.outbox where processing_token is not null group by processing_token order by 1`); len(got) != 3 {
		t.Errorf("claimed: %v", got)
	}
	if got := list(t, conn, `select count(*) || ' ' || count(distinct id) from public.outbox where delivered_at is null`); got[0] != "150000 150000" {
		t.Errorf("waiting: %v", got)
	}
	list(t, conn, `select app.outbox_mark_delivered('`+tokenA+`', array(select id from public.outbox where processing_token = '`+tokenA+`'))::text`)
	if got := list(t, conn, `select id::text from public.outbox where processing_token = '`+tokenA+`'`); len(got) != 0 {
		t.Errorf("delivered, and still found: %d", len(got))
	}
	// Claims remove what has run out.
	db.Exec(t, pgtest.Owner, `update deed.door_claims set claimed_at = claimed_at - interval '6 minutes'`)
	list(t, conn, `select id::text from app.outbox_claim(1, '`+tokenB+`', null)`)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.door_claims`); n != 1 {
		t.Errorf("%d rows of claims are kept, want the last one", n)
	}
	db.Broken() // the filled rows are not what a publisher makes
}
