package deed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
)

// Kept content and a subscription that is being given it: one excludes the
// other, whichever comes first, so that no message is pending without content.
func TestContract_O11_KeptContentStaysForABackfill(t *testing.T) {
	t.Parallel()
	unfinished := patch{"purge_kept", "and b.finished_at is null", "and false"}
	for name, broken := range map[string]*patch{"as it is": nil, "by the locks alone": &unfinished} {
		for _, purgeFirst := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", purge first ", purgeFirst), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				ctx := t.Context()
				for n := range 4 {
					publish(t, db, message("orders", n))
				}
				nextDay(t, db)
				older(t, db)
				same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 4", "0 emptied 0", "0 dropped 0"})
				db.Exec(t, pgtest.Worker, `select deed.finish(0, claim, ids) from (select claim, array_agg(id) as ids from deed.claim(null, 'w', 10) group by claim) c`)
				if broken != nil {
					broken.apply(t, db)
				}
				id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 's', 'beginning')`)
				pgtest.One[int](t, db.Pool(pgtest.Worker), `select added from deed.backfill($1)`, id) // the window
				page, purge := fmt.Sprintf(`select deed.backfill(%d)`, id), `select deed.purge_kept(-1, 0)`
				if purgeFirst {
					page, purge = purge, page
				}
				first := openTx(t, db, pgtest.Owner, page)
				ended := make(chan error, 1)
				second := db.Conn(t, pgtest.Owner)
				go func() {
					_, err := second.Exec(context.Background(), purge)
					ended <- err
				}()
				if broken != nil && purgeFirst { // the page waits for what is being removed
					eventually(t, "the second to wait, or end", func() bool {
						return len(ended) > 0 || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select count(*) > 0 from pg_locks where pid = $1 and not granted`, second.PgConn().PID())
					})
				} else if err := <-ended; err != nil {
					t.Fatal(err)
				} else {
					ended <- nil
				}
				if err := first.Commit(ctx); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				scan(t, db, id)
				found := pgtest.One[string](t, db.Pool(pgtest.Owner), `
					select count(*) || ' pending, ' || count(*) filter (where not exists (select from deed.kept k where (k.slot, k.id) = (p.slot, p.id))) || ' without content'
					from deed.pending p where subscription = $1`, id)
				want := "4 pending, 0 without content"
				if broken != nil && purgeFirst {
					want = "0 pending, 0 without content"
					db.Broken() // what it was owed is gone, as the filter was taken out
				}
				same(t, "what is pending", found, want)
			})
		}
	}
}

// Content that stays for a subscription that is still being brought it outlasts the receipts
// of the others: verify does not take it for what is lost.
func TestContract_O11_KeptForABackfillIsNotLost(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"queue", "stream"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			worker := db.Pool(pgtest.Worker)
			var msgs []deed.Message
			for n := range 4 {
				msgs = append(msgs, keyed("k", n))
			}
			if mode == "stream" { // which puts them aside
				c, stop := runStream(t, db, stream(&recorder{fail: func(deed.Message) error { return deed.Permanent(errors.New("never")) }}))
				publish(t, db, msgs...)
				drained(t, c)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			} else {
				publish(t, db, msgs...)
			}
			nextDay(t, db)
			older(t, db)
			same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 4", "0 emptied 0", "0 dropped 0"})
			for _, id := range pgtest.One[[]int64](t, worker, `select array_agg(id order by id) from deed.pending`) {
				db.Exec(t, pgtest.Admin, `select deed.discard($1, 'not needed')`, id)
			}
			late := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 'late', 'beginning')`)
			db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '8 days'`)
			retain(t, db, pgtest.Worker) // and asks verify
			same(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select (select count(*) from deed.kept) || ' kept, ' || (select count(*) from deed.receipts) || ' receipts'`), "4 kept, 0 receipts")
			scan(t, db, late)
			same(t, "messages that it is given", len(given(t, db, late)), 4)
		})
	}
}

// A claim that finds no content says so: the message is dead, with that reason,
// listed, and stays so when it is redriven.
func TestContract_O8_WithoutContentIsDead(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]string{
		"deed.claim":       `select id from deed.claim('orders', 'w', 10, 's')`,
		"deed.claim_doors": `select id from deed.claim_doors('w', 10, null)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Broken() // content is removed by hand
			subscribe(t, db, "orders", "s")
			db.Exec(t, pgtest.Owner, `select deed.set_door('orders', 's')`)
			published := publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3))
			gone := published[1].Seq
			db.Exec(t, pgtest.Owner, `delete from deed.log where id = $1`, gone)
			for range 2 {
				rows, err := db.Pool(pgtest.Owner).Query(t.Context(), claim)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for rows.Next() {
					n++
				}
				if rows.Err() != nil || n == 1 || n > 2 {
					t.Errorf("%d messages were claimed: %v", n, rows.Err())
				}
				saysGone(t, db, "orders", gone)
				operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if n, err := operator.Redrive(t.Context(), admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}}); n != 1 || err != nil {
					t.Errorf("%d redriven: %v", n, err)
				}
			}
		})
	}
}

// saysGone checks that one message is listed as dead for want of content.
func saysGone(t testing.TB, db *pgtest.DB, topic string, seq int64) {
	t.Helper()
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := operator.Dead(t.Context(), admin.DeadFilter{Topic: topic})
	if err != nil || len(dead.Items) != 1 || dead.Items[0].ID.Seq() != seq || !strings.Contains(dead.Items[0].LastError, "content is gone") {
		t.Errorf("dead letters: %+v, %v", dead, err)
	}
}

// Why a message without content was discarded is kept as of any other.
func TestDiscard_WithoutContentIsNotSilentEither(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // content is removed by hand
	subscribe(t, db, "orders", "s")
	gone := publish(t, db, message("orders", 1))[0].Seq
	db.Exec(t, pgtest.Owner, `delete from deed.log where id = $1`, gone)
	db.Exec(t, pgtest.Worker, `select id from deed.claim('orders', 'w', 10, 's')`)
	saysGone(t, db, "orders", gone)
	n, err := operator(t, db).Discard(t.Context(), gone, "", audit.Act{By: "ann", Reason: "nobody has it"})
	if n != 1 || err != nil {
		t.Fatalf("discarded %d, %v", n, err)
	}
	same(t, "the audit log", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(concat_ws(', ', a.actor, a.reason, a.from_status, a.details ->> 'topic', a.details ->> 'subscription'), '; '), '')
		from deed.audit_log a where a.action = 'discard' and a.subject_id = $1::bigint::text`, gone), "ann, nobody has it, dead, orders, s")
}

// So it is with what a stream has put aside; what stands behind it waits, and
// none of it is given out.
func TestContract_O13_WithoutContentIsDeadAndHoldsItsKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // content is removed by hand
	sink := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" {
			return deed.AfterError(time.Hour, errors.New("not yet"))
		}
		return nil
	}}
	_, stop := runStream(t, db, stream(sink))
	published := publish(t, db, keyed("bad", 0), keyed("bad", 1), keyed("bad", 2), keyed("good", 0))
	eventually(t, "the key to be put aside", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending`) == 3
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	attend := func() int {
		db.Exec(t, pgtest.Owner, `update deed.pending set process_after = now() where not parked`)
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `
			select count(*) from deed.attend((select id from deed.subscriptions where name = 's' and topic = 'orders'), 'w', 10, '{0}', '{1000000}', '30 seconds')`)
	}
	// One in the middle of the run: what stands before it is given out.
	db.Exec(t, pgtest.Owner, `delete from deed.log where id = $1`, published[1].Seq)
	same(t, "given out", attend(), 1)
	saysGone(t, db, "orders", published[1].Seq)
	same(t, "claimed", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where claim is not null`), 1)
	// The first of the key.
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = null, last_error = null where dead_at is not null`)
	db.Exec(t, pgtest.Owner, `update deed.pending set claim = null, claimed_at = null, claimed_by = null, lease_until = null`)
	db.Exec(t, pgtest.Owner, `delete from deed.log where id = $1`, published[0].Seq)
	same(t, "given out", attend(), 0)
	same(t, "claimed", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where claim is not null`), 0)
	same(t, "dead", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where dead_at is not null and id = $1`, published[0].Seq), 1)
}
