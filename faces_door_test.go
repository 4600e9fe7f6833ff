package deed_test

import (
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// What a face's worker has in hand when the mark is taken away, or goes to another
// subscription, it finishes or fails: else it would come once more when its lease is over.
func TestContract_O4_TheMarkGoesWhileMessagesAreInHand(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]string{
		"taken away":   `select deed.set_door('orders', 'one', false)`,
		"to the other": `select deed.set_door('orders', 'two')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := faces(t)
			one := subscribe(t, db, "orders", "one")
			subscribe(t, db, "orders", "two")
			db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 'one')`)
			worker := db.Pool(pgtest.Worker)
			publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3), message("orders", 4))
			app := list(t, worker, `select id::text from app.outbox_claim(1, '`+tokenA+`', null)`)
			m10 := list(t, worker, `select id::text from m10_recovery.claim_outbox_events('w', 2)`)
			db.Exec(t, pgtest.Admin, away)
			for range 2 { // and again, after a lost answer
				same(t, "finished", pgtest.One[int](t, worker, `select app.outbox_mark_delivered('`+tokenA+`', array[$1::text::uuid])`, app[0]), 1)
				db.Exec(t, pgtest.Worker, `select m10_recovery.complete_outbox_event($1::text::bigint, 'w', true)`, m10[0])
			}
			db.Exec(t, pgtest.Worker, `select m10_recovery.complete_outbox_event($1::text::bigint, 'w', false, 'no')`, m10[1])
			same(t, "what is left of it", list(t, worker, `
				select concat_ws(' ', attempts, last_error, claimed_by) from deed.pending where subscription = $1 order by id`, one), "[1 no 0]")
			same(t, "counted as lost", pgtest.One[int](t, db.Pool(pgtest.Owner), `select coalesce(sum(lost), 0) from deed.receipts`), 0)

			// What it did not take in time is nobody's but who has it.
			db.Exec(t, pgtest.Owner, `update deed.subscriptions set door_until = clock_timestamp() - interval '1 ms' where id = $1`, one)
			db.Exec(t, pgtest.Owner, `update deed.pending set claimed_by = 'w', claimed_at = now(), claim = 1, lease_until = now() where subscription = $1`, one)
			db.Exec(t, pgtest.Worker, `select m10_recovery.complete_outbox_event($1::text::bigint, 'w', true)`, m10[1])
			same(t, "long after", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1`, one), 2)
		})
	}
}

// A relay that drains the subscription from then on brings what the faces had not
// finished, and nothing else, although their leases end meanwhile.
func TestContract_O4_AfterTheMarkNothingComesTwice(t *testing.T) {
	t.Parallel()
	db := faces(t)
	one := subscribe(t, db, "orders", "one")
	db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 'one')`)
	worker := db.Pool(pgtest.Worker)
	publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3))
	got := list(t, worker, `select id::text from app.outbox_claim(2, '`+tokenA+`', null)`)
	db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 'one', false)`)
	same(t, "finished", pgtest.One[int](t, worker, `select app.outbox_mark_delivered('`+tokenA+`', array[$1::text::uuid])`, got[0]), 1)
	db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1 and claim is not null`, one)
	rec := &recorder{}
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "one", Sink: rec}}})
	drained(t, c)
	if n, _ := rec.counts(); n != 2 {
		t.Errorf("the relay delivered %d, want the second, which nobody has finished, and the third", n)
	}
}
