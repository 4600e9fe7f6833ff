package deed_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A DELETE on a face leaves, and does not count, what was published while its
// topic was a stream, though it was finished by itself in the end: the lanes'
// records count it in the log. What came before and after goes.
func TestContract_O4_ADeleteLeavesWhatAStreamRead(t *testing.T) {
	t.Parallel()
	db := faces(t)
	var tries atomic.Int64
	lines := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && tries.Add(1) == 1 {
			return deed.AfterError(20*time.Millisecond, errors.New("not yet"))
		}
		return nil
	}}
	handler := deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: lines}}}
	sub := subscribe(t, db, "orders", "s")
	publish(t, db, keyed("before", 1))
	db.Exec(t, pgtest.Admin, `select deed.set_topic('orders', p_mode => 'stream')`)
	c, stop := run(t, db, handler)
	publish(t, db, keyed("bad", 1), keyed("good", 1))
	eventually(t, "the retry to end", func() bool { n, _ := lines.counts(); return n == 3 })
	drained(t, c)
	backfill(t, db, sub) // until it has ended the stream stays one
	db.Exec(t, pgtest.Admin, `select deed.set_topic('orders', p_mode => 'queue')`)
	eventually(t, "the topic to be a queue", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `select mode from deed.topics where topic = 'orders'`) == "queue"
	})
	publish(t, db, keyed("after", 1), keyed("after", 2))
	eventually(t, "all to come", func() bool { n, _ := lines.counts(); return n == 5 })
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 's')`)
	worker := db.Pool(pgtest.Worker)
	same(t, "shown as processed", len(list(t, worker, `select id::text from m10_recovery.outbox where processed_at is not null`)), 4)
	same(t, "removed", list(t, worker, `delete from m10_recovery.outbox where processed_at is not null returning aggregate_id`), []string{"before", "after", "after"})
	same(t, "shown then", list(t, worker, `select aggregate_id from m10_recovery.outbox`), []string{"bad"})
}

// A DELETE on a face leaves what a registered subscription is owed that is not in
// its topic's list yet, as while somebody has a change of the topic open.
func TestContract_O4_ADeleteLeavesWhatOneWhoJoinsIsOwed(t *testing.T) {
	t.Parallel()
	for name, relation := range map[string]string{"app": `delete from public.outbox where delivered_at is not null`, "recovery": `delete from m10_recovery.outbox where processed_at is not null`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := faces(t)
			first := subscribe(t, db, "orders", "s")
			db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 's')`)
			published := publish(t, db, message("orders", 1))
			worker := db.Pool(pgtest.Worker)
			got := claim(t, worker, "orders", "w", 9)
			finish(t, worker, first, got[0].Claim, ids(got)...)
			open := openTx(t, db, pgtest.Admin, `select deed.set_topic('orders', p_retention => '8 days')`)
			late := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'audit', 'beginning')`)
			tag, err := worker.Exec(t.Context(), relation)
			if err != nil || tag.RowsAffected() != 0 {
				t.Errorf("said %d were removed, %v", tag.RowsAffected(), err)
			}
			if err := open.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			scan(t, db, late)
			same(t, "what it is given", given(t, db, late), []int64{published[0].Seq})
		})
	}
}
