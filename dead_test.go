package deed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// kill makes everything dead that is pending for a subscription, with one error.
func kill(t testing.TB, db *pgtest.DB, subscription int, text string) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		update deed.pending set dead_at = clock_timestamp(), last_error = $2, attempts = 20
		where subscription = $1 and dead_at is null`, subscription, text)
}

func TestContract_O9_RedriveByFilter(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	sub := subscribe(t, db, "orders", "s")
	other := subscribe(t, db, "invoices", "s")
	a := tenant.ID{0xa}
	err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(ctx, tx, a); err != nil {
			return err
		}
		_, err := deed.Publish(ctx, tx, message("orders", 1))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	kill(t, db, sub, "webhook: Status 503")
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = dead_at - interval '2 hours'`)
	typed := message("orders", 2)
	typed.Type = "order.placed"
	third := publish(t, db, typed, message("orders", 3))[1]
	publish(t, db, message("invoices", 4))
	kill(t, db, sub, "no such account")
	kill(t, db, other, "webhook: Status 503")
	c := operator(t, db)
	for _, test := range []struct {
		f    admin.DeadFilter
		want int64
	}{
		{admin.DeadFilter{}, 4},
		{admin.DeadFilter{Topic: "orders"}, 3},
		{admin.DeadFilter{Topic: "orders", Limit: 2}, 2},
		{admin.DeadFilter{Tenant: &a}, 1},
		{admin.DeadFilter{Type: "order.placed"}, 1},
		{admin.DeadFilter{Error: "status 503"}, 2},
		{admin.DeadFilter{Error: "status 503", Topic: "invoices"}, 1},
		{admin.DeadFilter{OlderThan: time.Hour}, 1},
		{admin.DeadFilter{NewerThan: time.Hour}, 3},
		{admin.DeadFilter{Seqs: []int64{third.Seq}}, 1},
		{admin.DeadFilter{Error: "%"}, 0},
	} {
		if n, err := c.Redrive(ctx, admin.Redrive{DeadFilter: test.f, DryRun: true}); n != test.want || err != nil {
			t.Errorf("%+v would put back %d, %v, want %d", test.f, n, err, test.want)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where dead_at is null`); n != 0 {
		t.Errorf("dry runs put back %d", n)
	}
	counts, err := c.CountDead(ctx, admin.DeadFilter{NewerThan: time.Hour})
	if err != nil || len(counts) != 2 || counts[0].Topic != "invoices" || counts[0].Dead != 1 || counts[1].Dead != 2 {
		t.Errorf("counts %+v, %v", counts, err)
	}
	for _, f := range []admin.DeadFilter{{Error: "status 503", Topic: "orders"}, {Seqs: []int64{third.Seq}}, {Type: "order.placed"}} {
		if n, err := c.Redrive(ctx, admin.Redrive{DeadFilter: f}); n != 1 || err != nil {
			t.Errorf("%+v put back %d, %v", f, n, err)
		}
	}
	if left, err := c.Dead(ctx, admin.DeadFilter{}); err != nil || len(left.Items) != 1 || left.Items[0].Topic != "invoices" {
		t.Errorf("dead are still %+v, %v", left, err)
	}
}

// A key's messages come back in their order, whatever the steps and the rate,
// and no faster than asked.
func TestContract_O9_RedriveKeepsKeyOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	sub := subscribe(t, db, "orders", "s")
	const n = 60
	var msgs []deed.Message
	for i := range n {
		m := message("orders", i)
		m.Key = fmt.Sprint("k", i%3)
		msgs = append(msgs, m)
	}
	publish(t, db, msgs...)
	kill(t, db, sub, "down")
	started := time.Now()
	steps := 0
	redriven, err := operator(t, db).Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}, Rate: 30, Progress: func(int64, int64) { steps++ }})
	if err != nil || redriven != n {
		t.Fatalf("put back %d, %v", redriven, err)
	}
	// 60 at 30 a second: a machine that is busy for a second does not make them two
	// steps.
	if took := time.Since(started); took < 1500*time.Millisecond || steps < 3 {
		t.Errorf("it took %s in %d steps", took, steps)
	}
	byKey := map[string][]int64{}
	for len(byKey["k0"])+len(byKey["k1"])+len(byKey["k2"]) < n {
		rows, err := db.Pool(pgtest.Worker).Query(ctx, `select key, id from deed.claim('orders', 'w', 7, 's', p_lease => '1 hour')`)
		if err != nil {
			t.Fatal(err)
		}
		var key string
		var id int64
		count := 0
		if _, err := pgx.ForEachRow(rows, []any{&key, &id}, func() error {
			count++
			byKey[key] = append(byKey[key], id)
			return nil
		}); err != nil || count == 0 {
			t.Fatal(count, err)
		}
	}
	for key, ids := range byKey {
		if !slices.IsSorted(ids) {
			t.Errorf("key %s came back as %v", key, ids)
		}
	}
}

// A request that is cut off goes on where it was, one that is done does
// nothing, two that run at once share the work, and each message is put back once.
func TestContract_O9_RedriveIsARequest(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	sub := subscribe(t, db, "orders", "s")
	var msgs []deed.Message
	for i := range 2200 {
		msgs = append(msgs, message("orders", i))
	}
	publish(t, db, msgs...)
	kill(t, db, sub, "down")
	c := operator(t, db)
	owner := db.Pool(pgtest.Owner)
	asked := admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}, Act: audit.Act{By: "ann", Reason: "it is up again"}, Request: "inc-211"}

	// Cut off after the first step, before the second.
	cut, cancel := context.WithCancel(ctx)
	first := asked
	first.Progress = func(int64, int64) { cancel() }
	if n, err := c.Redrive(cut, first); err == nil || n != 500 {
		t.Fatalf("cut off: %d, want what was put back before: 500; %v", n, err)
	}
	back := func() int {
		t.Helper()
		return pgtest.One[int](t, owner, `select count(*) from deed.pending where dead_at is null`)
	}
	before := back()
	if before < 500 || before > 1000 {
		t.Fatalf("after the cut %d are back", before)
	}
	// What dies again, or dies later, is not put back by the same request.
	publish(t, db, message("orders", 1), message("orders", 2))
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = clock_timestamp(), last_error = 'again' where dead_at is null`)

	other := asked
	other.Topic = ""
	if _, err := c.Redrive(ctx, other); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("the request for something else: %v", err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if n, err := c.Redrive(ctx, asked); n != 2200 || err != nil {
				t.Errorf("gone on: %d, %v", n, err)
			}
		})
	}
	wg.Wait()
	if n := back(); n != 2200-before {
		t.Errorf("%d are back, want %d: those that died again stay dead", n, 2200-before)
	}
	if n, err := c.Redrive(ctx, asked); n != 2200 || err != nil || back() != 2200-before {
		t.Errorf("repeated: %d, %v", n, err)
	}
	acts, err := c.Audit(ctx, admin.AuditFilter{Subject: "inc-211", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, act := range acts.Items {
		if act.Actor != "ann" || act.Reason != "it is up again" || act.Login != "deed_test_admin" {
			t.Errorf("audited as %+v", act)
		}
		if act.Action == "redrive" {
			sum += act.Affected
		}
	}
	if sum != 2200 || acts.Items[len(acts.Items)-1].Action != "redrive asked for" || acts.Items[len(acts.Items)-1].Affected != 2200 {
		t.Errorf("the audit log counts %d in %d acts", sum, len(acts.Items))
	}
	for _, q := range []string{`delete from deed.audit_log`, `update deed.audit_log set reason = ''`, `truncate deed.audit_log`} {
		if _, err := owner.Exec(ctx, q); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v", q, err)
		}
	}

	// Cancelled from elsewhere, in the middle.
	slow := admin.Redrive{DeadFilter: admin.DeadFilter{Error: "again"}, Request: "inc-212", Rate: 20}
	slow.Progress = func(redriven, _ int64) {
		if redriven > 0 {
			if _, err := c.CancelRedrive(ctx, "inc-212", audit.Act{By: "bob", Reason: "no"}); err != nil && deed.CodeOf(err) != deed.Conflict {
				t.Error(err)
			}
		}
	}
	n, err := c.Redrive(ctx, slow)
	if deed.CodeOf(err) != deed.Conflict || n == 0 || n > 40 || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("cancelled: %d, %v", n, err)
	}
	if _, err := c.CancelRedrive(ctx, "inc-211", audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("cancelling what is done: %v", err)
	}
	if _, err := c.CancelRedrive(ctx, "inc-213", audit.Act{}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("cancelling what is unknown: %v", err)
	}
	list, err := c.Redrives(ctx, "", 10)
	if err != nil || len(list.Items) != 2 || list.Items[0].State != "cancelled" || list.Items[1].State != "done" || !strings.Contains(string(list.Items[1].Asked), `"orders"`) {
		t.Errorf("requests %+v, %v", list, err)
	}
}

// A request with a rate goes on though the server's clock is behind where it was at the step before.
func TestRedrive_OnceTheClockHasGoneBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3))
	kill(t, db, sub, "down")
	step := func(rate int) string {
		return pgtest.One[string](t, db.Pool(pgtest.Admin), `select state from deed.redrive('r', 'orders', p_rate => $1)`, rate)
	}
	same(t, "the first step", step(1), "running")
	db.Exec(t, pgtest.Owner, `update deed.redrives set stepped_at = clock_timestamp() + interval '1 hour'`)
	same(t, "a step an hour before that", step(1), "running")
	eventually(t, "the rest to be put back", func() bool { return step(100) == "done" })
	same(t, "put back", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where dead_at is null`), 3)
}

// A discarded message is gone from what is pending and nothing else: why, by
// whom and what it was stays.
func TestContract_O9_DiscardIsNeverSilent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	first, second := subscribe(t, db, "orders", "one"), subscribe(t, db, "orders", "two")
	published := publish(t, db, message("orders", 1), message("orders", 2))
	seq := published[0].Seq
	c := operator(t, db)
	db.Exec(t, pgtest.Worker, `select deed.claim('orders', 'w', 10, 'one', p_lease => '1 hour'), deed.claim('orders', 'w', 10, 'two', p_lease => '1 hour')`)
	if _, err := c.Discard(ctx, seq, "", audit.Act{Reason: "why"}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("discarding what somebody has in hand: %v", err)
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set claim = null, claimed_at = null, claimed_by = null, lease_until = null`)
	kill(t, db, first, "no such account")
	kill(t, db, second, "no such account")
	for _, reason := range []string{"", "  "} {
		if _, err := c.Discard(ctx, seq, "", audit.Act{Reason: reason}); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("discarding without a reason: %v", err)
		}
	}
	if _, err := c.Discard(ctx, 1<<40, "", audit.Act{Reason: "why"}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("discarding what is not there: %v", err)
	}
	if n, err := c.Discard(ctx, seq, "one", audit.Act{By: "ann", Reason: "order was cancelled"}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	if n, err := c.Discard(ctx, seq, "", audit.Act{Reason: "order was cancelled"}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	if _, err := c.Discard(ctx, seq, "", audit.Act{Reason: "again"}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("discarding it again: %v", err)
	}
	story, err := c.Message(ctx, fmt.Sprint(seq), false)
	if err != nil || len(story.States) != 2 {
		t.Fatalf("%+v, %v", story, err)
	}
	for i, by := range []string{"ann", "deed_test_admin"} {
		s := story.States[i]
		if s.State != "discarded" || s.Worker != by || s.Reason != "order was cancelled" || s.DiscardedAt == nil || s.DeliveredAt != nil || s.Attempts != 20 {
			t.Errorf("the message's story: %+v, want it discarded by %s", s, by)
		}
	}
	acts, err := c.Audit(ctx, admin.AuditFilter{Subject: fmt.Sprint(seq), Limit: 10})
	if err != nil || len(acts.Items) != 2 || acts.Items[1].Actor != "ann" || !strings.Contains(string(acts.Items[1].Details), "no such account") {
		t.Errorf("audited as %+v, %v", acts, err)
	}
	topics, err := c.Status(ctx)
	if err != nil || topics[0].Delivered != 0 || topics[0].Dead != 2 {
		t.Errorf("status %+v, %v: what is discarded is not delivered", topics, err)
	}
	worker, err := admin.New(ctx, db.Pool(pgtest.Worker), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := worker.Verify(ctx); len(list) != 0 || err != nil {
		t.Errorf("verify: %+v, %v", list, err)
	}
}

// What waits is given up like what is dead, for the subscriptions that do not
// have it in hand; nobody is delivered it.
func TestContract_O9_DiscardTakesWhatWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "one")
	subscribe(t, db, "orders", "two")
	seq := publish(t, db, message("orders", 1))[0].Seq
	db.Exec(t, pgtest.Worker, `select deed.claim('orders', 'w', 10, 'two', p_lease => '1 hour')`)
	c := operator(t, db)
	if n, err := c.Discard(ctx, seq, "", audit.Act{By: "ann", Reason: "an attack"}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v; want 1, since the other is in hand", n, err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim('orders', 'w', 10, 'one')`); n != 0 {
		t.Error("it is claimed though it was given up")
	}
	acts, err := c.Audit(ctx, admin.AuditFilter{Subject: fmt.Sprint(seq), Limit: 10})
	if err != nil || len(acts.Items) != 1 || acts.Items[0].Actor != "ann" {
		t.Errorf("audited as %+v, %v", acts, err)
	}
	if from := pgtest.One[string](t, db.Pool(pgtest.Admin), `select from_status from deed.audit_log where action = 'discard'`); from != "pending" {
		t.Errorf("audited as a change from %s", from)
	}
}

// A message that waits at the head of its key and is given up lets the key go on.
func TestContract_O9_DiscardOfAWaitingHeadLetsTheKeyGoOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{fail: func(m deed.Message) error {
		if string(m.Payload) == `{"n":0}` {
			return deed.After(time.Hour)
		}
		return nil
	}}
	c, stop := runStream(t, db, stream(sink))
	first := publish(t, db, keyed("bad", 0))[0].Seq
	for i := range 5 {
		publish(t, db, keyed("bad", i+1))
	}
	eventually(t, "the message to wait and its followers to be parked", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where parked or process_after is not null`) == 6
	})
	if n, err := operator(t, db).Discard(t.Context(), first, "", audit.Act{Reason: "will not be mended"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	eventually(t, "the others to have come", func() bool { n, _ := sink.counts(); return n == 5 })
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// In an ordered stream the messages behind a dead one wait; when that is given
// up they go on, in order.
func TestContract_O9_DiscardLetsTheKeyGoOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && string(m.Payload) == `{"n":0}` {
			return deed.Permanent(errors.New("cannot be"))
		}
		return nil
	}}
	c, stop := runStream(t, db, stream(sink))
	for i := range 20 {
		publish(t, db, keyed("bad", i), keyed("good", i))
	}
	eventually(t, "the message to be dead and its followers parked", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where dead_at is not null or parked`) == 20
	})
	operator := operator(t, db)
	dead, err := operator.Dead(t.Context(), admin.DeadFilter{})
	if err != nil || len(dead.Items) != 1 {
		t.Fatal(dead, err)
	}
	if n, err := operator.Discard(t.Context(), dead.Items[0].Seq, "", audit.Act{Reason: "cannot be mended"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	eventually(t, "the others to have come", func() bool { n, _ := sink.counts(); return n == 39 })
	drained(t, c)
	publish(t, db, keyed("bad", 20)) // the key goes its own way again
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	inOrder(t, sink.succeeded())
	if n, repeats := sink.counts(); n != 40 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 40 and none", n, repeats)
	}
}
