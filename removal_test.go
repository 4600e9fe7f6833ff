package deed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
)

// operator is a client of deed_admin's, whose steps may take as long as a test waits.
func operator(t testing.TB, db *pgtest.DB) *admin.Client {
	t.Helper()
	c, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// remove removes a subscription, or a topic, and returns when nothing of it is left.
// That nothing late is to come is known only when all older transactions
// of the whole server have ended, other tests' included; and a relay that runs beside it may be who sees to that.
func remove(t testing.TB, db *pgtest.DB, topic, name string) (taken int64) {
	t.Helper()
	c, begun := operator(t, db), false
	eventuallyWithin(t, 3*time.Minute, "the removal to be over", func() bool {
		done, err := c.Remove(t.Context(), admin.Removal{Act: audit.Act{Reason: "no longer used", By: "ann"}, Topic: topic, Subscription: name})
		if begun && deed.CodeOf(err) == deed.NotFound {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		taken, begun = max(taken, done.Taken), true
		return !done.Waits
	})
	return taken
}

func TestRemove_GivesUpWhatIsOwedAndNoMore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	gone, other := subscribe(t, db, "orders", "s"), subscribe(t, db, "orders", "t")
	publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3), message("orders", 4), message("undeclared", 5))
	got := claim(t, worker, "orders", "w", 3)
	finish(t, worker, gone, got[0].Claim, got[0].ID)
	db.Exec(t, pgtest.Worker, `select deed.fail($1, $2, array[$3::bigint], '{no}', p_outcomes => '{discard}')`, gone, got[1].Claim, got[1].ID)

	c := operator(t, db)
	counts, err := c.CountRemoval(t.Context(), "orders", "s")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what would be given up", fmt.Sprintf("%+v", counts),
		"[{Subscription:s Mode:queue Door:false Waiting:2 Claimed:1 Aside:0 Dead:1 BlockedKeys:0 Unread:0 AtLeast:false Workers:[w]}]")
	same(t, "counting changes nothing", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1`, gone), 3)

	same(t, "given up", remove(t, db, "orders", "s"), 3)
	verified(t, db)
	same(t, "rows of the other", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1`, other), 4)
	same(t, "rows of what nobody declared", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = 0`), 1)
	same(t, "what was delivered stays recorded", pgtest.One[int64](t, worker, `select max_id from deed.receipts where subscription = $1 and finished > 0`, gone), got[0].ID)

	story, err := c.Message(t.Context(), fmt.Sprint(got[0].ID), false)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, s := range story.States {
		states = append(states, s.Subscription+" "+s.State)
	}
	same(t, "what is shown of it", states, []string{"t due", "s (removed) delivered"})

	// Who was at it finishes nothing, and claims nothing.
	same(t, "finished afterwards", finish(t, worker, gone, got[2].Claim, got[2].ID), 0)
	if _, err := tryClaim(worker, "orders", "w", 1); sqlState(err) != "DDNFD" {
		t.Errorf("a claim ends with %v", err)
	}
	publish(t, db, message("orders", 6))
	same(t, "rows of the other", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1`, other), 5)
	same(t, "rows of the removed one", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1`, gone), 0)
	verified(t, db)

	acts, err := c.Audit(t.Context(), admin.AuditFilter{Subject: "orders/s", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, a := range acts.Items {
		told = append(told, fmt.Sprintf("%s by %s, %d: %s", a.Action, a.Actor, a.Affected, a.Reason))
	}
	same(t, "audit", told, []string{"removal finished by ann, 3: no longer used", "subscription removed by ann, 1: no longer used"})

	_, err = c.Remove(t.Context(), admin.Removal{Act: audit.Act{Reason: "again"}, Topic: "orders", Subscription: "s"})
	same(t, "removing it again", deed.CodeOf(err), deed.NotFound)
	_, err = c.Remove(t.Context(), admin.Removal{Act: audit.Act{Reason: " "}, Topic: "orders", Subscription: "t"})
	same(t, "without a reason", deed.CodeOf(err), deed.Invalid)
	_, err = c.Remove(t.Context(), admin.Removal{Act: audit.Act{Reason: "x"}, Subscription: "default"})
	same(t, "that of what nobody declared", deed.CodeOf(err), deed.Invalid)
}

// What keeps partitions for a subscription goes with it: rows that would be moved
// out, a stream that nobody has begun to read, and one that has stopped.
func TestContract_O11_WhatIsRemovedKeepsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	opts := stream(&recorder{})
	c, stop := run(t, db, opts)
	publish(t, db, keyed("a", 1), keyed("b", 1))
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('events', 'stream'), deed.subscribe('events', 'never')`)
	queue := subscribe(t, db, "jobs", "s")
	for range 2 {
		publish(t, db, keyed("a", 2), deed.Message{Topic: "events", Value: 1}, message("jobs", 1))
		nextDay(t, db)
	}
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp() where finished_at is null`)
	kept := pgtest.One[string](t, db.Pool(pgtest.Worker), `select array_to_string(kept_by, '; ') from deed.retention() where n = 0`)
	if !strings.Contains(kept, "events/never has not begun to read") || !strings.Contains(kept, "orders/") {
		t.Fatalf("kept by %s", kept)
	}
	same(t, "steps while they are there", retain(t, db, pgtest.Worker), []string{})

	for _, s := range pgtest.One[[]string](t, db.Pool(pgtest.Worker), `select array_agg(topic || '/' || name) from deed.subscriptions where id not in (0, $1)`, queue) {
		topic, name, _ := strings.Cut(s, "/")
		remove(t, db, topic, name)
		verified(t, db)
	}
	same(t, "steps", retain(t, db, pgtest.Worker), []string{
		"0 began 0", "0 moved 1", "0 emptied 0", "0 dropped 0", "1 began 0", "1 moved 1", "1 emptied 0", "1 dropped 0",
	})
	same(t, "content that was moved out", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 2)
	same(t, "given up", remove(t, db, "jobs", "s"), 2)
	verified(t, db)
	retain(t, db, pgtest.Worker)
	same(t, "content for a queue that was removed", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 0)

	// And in the end nothing is known of them.
	publish(t, db, message("undeclared", 2), message("undeclared", 3))
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.removals set finished_at = finished_at - interval '8 days'`)
	db.Exec(t, pgtest.Owner, `update deed.progress set finished_at = finished_at - interval '8 days'`)
	db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '8 days'`)
	retain(t, db, pgtest.Worker)
	same(t, "what is left", pgtest.One[[]int](t, db.Pool(pgtest.Worker), `
		select array[(select count(*) from deed.removals), (select count(*) from deed.progress), (select count(*) from deed.former_lanes),
			(select count(*) from deed.receipts), (select count(*) from deed.pending where subscription <> 0)]`), []int{0, 0, 0, 0, 0})
}

// A publisher that had read the list before the removal commits after it: what
// it has given to the removed subscription is taken away, and nothing waits for
// it but the removal's own row.
func TestRemove_LatePublishersLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprint(isolation, " whole ", whole), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				ctx := t.Context()
				worker := db.Pool(pgtest.Worker)
				id := subscribe(t, db, "orders", "s")
				db.Exec(t, pgtest.Worker, `select deed.declare_topic('unread')`)
				tx, err := db.Pool(pgtest.App).BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(ctx)
				if _, err := deed.Publish(ctx, tx, message("orders", 1), message("unread", 2)); err != nil {
					t.Fatal(err)
				}
				publish(t, db, message("orders", 3), message("unread", 4))

				c := operator(t, db)
				name := "s"
				if whole {
					name = ""
					done, err := c.Remove(ctx, admin.Removal{Act: audit.Act{Reason: "x"}, Topic: "unread"})
					same(t, "removal of what has no subscription", fmt.Sprint(done, err), "{1 true} <nil>")
				}
				done, err := c.Remove(ctx, admin.Removal{Act: audit.Act{Reason: "x"}, Topic: "orders", Subscription: name})
				same(t, "removal while it is open", fmt.Sprint(done, err), "{1 true} <nil>")
				if err := tx.Commit(ctx); err != nil {
					t.Fatal(err)
				}
				late := `select count(*) from deed.pending where subscription = $1 or (subscription = 0 and $2)`
				same(t, "late rows", pgtest.One[int](t, worker, late, id, whole), map[bool]int{false: 1, true: 2}[whole])
				verified(t, db)
				publish(t, db, message("orders", 5)) // to whoever comes
				remaining := pgtest.One[int](t, worker, late, id, whole)

				// A relay of anything goes on with it.
				clearAway(t, db)
				same(t, "rows left", pgtest.One[int](t, worker, late, id, whole), remaining-map[bool]int{false: 1, true: 2}[whole])
				verified(t, db)
				if whole {
					same(t, "what was published afterwards is as to one that nobody declared",
						pgtest.One[bool](t, worker, `select l.slot < 64 from deed.pending p join deed.log l on l.id = p.id where p.subscription = 0 and l.topic = 'orders'`), true)
				}
			})
		}
	}
}

// A publisher under REPEATABLE READ that has an older list before its eyes must
// not give anything to who was removed.
func TestRemove_AnOldSnapshotPublishesAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	subscribe(t, db, "orders", "s")
	subscribe(t, db, "jobs", "s")
	for _, topic := range []string{"orders", "jobs"} {
		tx, err := db.Pool(pgtest.App).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, `select 1 from deed.settings`); err != nil {
			t.Fatal(err)
		}
		c := operator(t, db)
		if _, err := c.Remove(ctx, admin.Removal{Act: audit.Act{Reason: "x"}, Topic: topic, Subscription: map[string]string{"orders": "s"}[topic]}); err != nil {
			t.Fatal(err)
		}
		if _, err := deed.Publish(ctx, tx, message(topic, 1)); sqlState(err) != "40001" {
			t.Errorf("publishing to %s ends with %v", topic, err)
		}
	}
}

// A name that is declared again is a new subscription, with another id, which
// begins now: what the one before delivered does not come again. A topic's slots are not
// given out again, and nothing of the old one comes to the new one.
func TestRemove_ANameBeginsAnew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	publish(t, db, message("orders", 0)) // before anybody declared it
	first := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1), message("orders", 2))
	got := claim(t, worker, "orders", "w", 2)
	finish(t, worker, first, got[0].Claim, got[0].ID)
	base := pgtest.One[int](t, worker, `select slot_base from deed.topics where topic = 'orders'`)
	remove(t, db, "orders", "s")
	publish(t, db, message("orders", 3))

	second := subscribe(t, db, "orders", "s")
	if second <= first {
		t.Errorf("the new subscription has the id %d, the one before had %d", second, first)
	}
	publish(t, db, message("orders", 4))
	backfill(t, db, second)
	same(t, "what the new one is given", payloads(claim(t, worker, "orders", "w", 9)), []string{`{"n":4}`})
	same(t, "what nobody was owed waits", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = 0`), 1)
	verified(t, db)

	same(t, "given up with the topic", remove(t, db, "orders", ""), 2)
	verified(t, db)
	publish(t, db, message("orders", 5))
	third := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 6))
	backfill(t, db, third)
	same(t, "what the new topic's is given", payloads(claim(t, worker, "orders", "w", 9)), []string{`{"n":5}`, `{"n":6}`})
	if again := pgtest.One[int](t, worker, `select slot_base from deed.topics where topic = 'orders'`); again <= base || third <= second {
		t.Errorf("the new topic has slots from %d and subscription %d, the one before had %d and %d", again, third, base, second)
	}
	verified(t, db)
}

func payloads(list []claimed) (out []string) {
	for _, c := range list {
		out = append(out, c.Payload)
	}
	return out
}

// Steps cost what they take away, however much has gone before them and however
// long others' snapshots keep the dead rows.
func TestRemove_StepsAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	worker := db.Pool(pgtest.Worker)
	id := subscribe(t, db, "orders", "s")
	db.Exec(t, pgtest.Owner, `alter table deed.pending set (autovacuum_enabled = off)`) // on pages that it has seen, each lock reads the visibility map
	db.Exec(t, pgtest.Owner, `
		insert into deed.pending (subscription, slot, id, tenant_id, ord_at)
		select $1, (select t.slot_base from deed.topics t where t.topic = 'orders'), i, '00000000-0000-0000-0000-000000000000', now() from generate_series(1, 30000) i`, id)
	old, err := worker.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(ctx)
	if _, err := old.Exec(ctx, `select count(*) from deed.pending`); err != nil {
		t.Fatal(err)
	}
	n := pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.remove_subscription('orders', 's', 'x')`)
	var costs []int64
	for {
		var state string
		var taken int
		buffers := buffersOf(t, worker, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `select state, taken from deed.remove_step($1, 1000)`, n).Scan(&state, &taken)
		})
		if state != "going" {
			break
		}
		same(t, "taken by a step", taken, 1000)
		costs = append(costs, buffers)
	}
	same(t, "steps", len(costs), 30)
	if first, last := costs[1], costs[len(costs)-1]; first < 1000 || last > first+300 { // 1000 and more, if it stepped over what is gone
		t.Errorf("a step read %d buffers at first and %d at last", first, last)
	}
	clearAway(t, db)
}

// clearAway takes the steps of all removals.
func clearAway(t testing.TB, db *pgtest.DB) {
	t.Helper()
	worker := db.Pool(pgtest.Worker)
	eventuallyWithin(t, 3*time.Minute, "the removals to be over", func() bool {
		for _, n := range pgtest.One[[]int64](t, worker, `select coalesce(array_agg(n), '{}') from deed.removals where finished_at is null`) {
			db.Exec(t, pgtest.Worker, `select deed.remove_step($1)`, n)
		}
		return pgtest.One[int](t, worker, `select count(*) from deed.removals where finished_at is null`) == 0
	})
}

// buffersOf is how many buffers of the database's tables do reads.
func buffersOf(t testing.TB, pool interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}, do func(pgx.Tx) error,
) int64 {
	t.Helper()
	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	const count = `
		select sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint
		from pg_class c
		where c.relnamespace = 'deed'::regnamespace and c.relname in ('pending', 'pending_pkey', 'removals', 'removals_pkey')`
	var before, after int64
	err = errors.Join(tx.QueryRow(ctx, count).Scan(&before), do(tx), tx.QueryRow(ctx, count).Scan(&after), tx.Commit(ctx))
	if err != nil {
		t.Fatal(err)
	}
	return after - before
}

// A removal that was cut off before a dump goes on in the cluster where that is
// restored: transaction ids of the one before mean nothing there.
func TestRemove_GoesOnAfterARestore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	id := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1), message("orders", 2))
	n := pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.remove_subscription('orders', 's', 'x')`)
	same(t, "a step", pgtest.One[string](t, worker, `select state from deed.remove_step($1, 1)`, n), "going")
	db.Exec(t, pgtest.Owner, `update deed.removals set system_identifier = 1, upto = '9000000000000', made_by = '8999999999999'`)
	clearAway(t, db)
	same(t, "rows that are left", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1`, id), 0)
	same(t, "given up", pgtest.One[int](t, worker, `select taken from deed.removals`), 2)
	verified(t, db)
}
