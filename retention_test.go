package deed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// nextDay opens the next partition, as a day does. A relay that keeps partitions just
// then is not waited for by deed.keep_partitions, and may be the one that opens it.
func nextDay(t testing.TB, db *pgtest.DB) {
	t.Helper()
	current := `select pg_sequence_last_value('deed.log_seq') / 68719476736`
	before := pgtest.One[int](t, db.Pool(pgtest.Owner), current)
	onPartitions(t, db, `set opened_at = opened_at - interval '25 hours' where opened_at is not null`)
	after := before
	eventually(t, "the next partition to be opened", func() bool {
		db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`)
		after = pgtest.One[int](t, db.Pool(pgtest.Owner), current)
		return after != before
	})
	if after != before+1 {
		t.Fatalf("the log is in partition %d, was in %d", after, before)
	}
}

// onPartitions changes all rows of deed.partitions. Who works on some locks them in an
// order of its own, and may be in the way.
func onPartitions(t testing.TB, db *pgtest.DB, set string) {
	t.Helper()
	for {
		_, err := db.Pool(pgtest.Owner).Exec(t.Context(), `update deed.partitions `+set)
		if sqlState(err) == "40P01" {
			continue // a deadlock: it was this one's turn to give way
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

// older makes everything so old that it is to be kept no longer.
func older(t testing.TB, db *pgtest.DB) {
	t.Helper()
	onPartitions(t, db, `set opened_at = opened_at - interval '30 days' where opened_at is not null`)
}

// retain runs retention as role does, checks the store after each step, and
// returns what it did to partitions.
func retain(t testing.TB, db *pgtest.DB, role pgtest.Role) (did []string) {
	t.Helper()
	did, err := tryRetain(t, db, role)
	if err != nil {
		t.Fatal(err)
	}
	return did
}

func tryRetain(t testing.TB, db *pgtest.DB, role pgtest.Role) (did []string, err error) {
	t.Helper()
	c, err := admin.New(t.Context(), db.Pool(role), admin.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Retain(t.Context(), func(s admin.RetentionStep) {
		if s.Partition != nil {
			did = append(did, fmt.Sprintf("%d %s %d", *s.Partition, s.Did, s.Count))
		}
		found, err := c.Verify(t.Context())
		if err != nil || len(found) > 0 {
			t.Errorf("after %+v: %v, %v", s, found, err)
		}
	})
	return did, err
}

// tables are the partitions that have a table.
func tables(t testing.TB, db *pgtest.DB) []int {
	t.Helper()
	return pgtest.One[[]int](t, db.Pool(pgtest.Owner), `
		select array_agg(n order by n) from deed.partitions where to_regclass('deed.log_p' || n) is not null`)
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestContract_O11_FinishedPartitionsGo(t *testing.T) {
	t.Parallel()
	for _, role := range []pgtest.Role{pgtest.Worker, pgtest.Owner} {
		t.Run(fmt.Sprint(role), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			id := subscribe(t, db, "orders", "s")
			backfill(t, db, id)
			worker := db.Pool(pgtest.Worker)
			for range 3 {
				publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3))
				nextDay(t, db)
			}
			got := claim(t, worker, "orders", "w", 9)
			finish(t, worker, id, got[0].Claim, ids(got)...)
			same(t, "steps while all is young", retain(t, db, role), []string{})
			older(t, db)
			same(t, "steps", retain(t, db, role), []string{
				"0 began 0", "0 moved 0", "0 emptied 0", "0 dropped 0",
				"1 began 0", "1 moved 0", "1 emptied 0", "1 dropped 0",
				"2 began 0", "2 moved 0", "2 emptied 0", "2 dropped 0",
			})
			same(t, "tables", tables(t, db), []int{3, 4, 5})
			same(t, "receipts", pgtest.One[int](t, worker, `select count(*) from deed.receipts`), 1)
			db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '8 days'`)
			retain(t, db, role)
			same(t, "receipts past their retention", pgtest.One[int](t, worker, `select count(*) from deed.receipts`), 0)
			publish(t, db, message("orders", 4))
			same(t, "claims afterwards", len(claim(t, worker, "orders", "w", 9)), 1)
		})
	}
}

// A topic that is to be kept longer keeps the partitions that it is in.
func TestContract_O11_TheLongestRetentionDecides(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	subscribe(t, db, "short", "s")
	worker, admin := db.Pool(pgtest.Worker), pgtest.Admin
	db.Exec(t, admin, `select deed.set_topic('orders', p_retention => '90 days'), deed.set_topic('short', p_retention => '1 hour')`)
	for _, topic := range []string{"short", "orders", "undeclared"} {
		publish(t, db, message(topic, 1), message(topic, 2))
		nextDay(t, db)
	}
	got := claim(t, worker, "orders", "w", 9)
	finish(t, worker, id, got[0].Claim, ids(got)...)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 2", "0 emptied 0", "0 dropped 0"})
	older(t, db)
	same(t, "steps after a month", retain(t, db, pgtest.Worker), []string{"2 began 0", "2 moved 2", "2 emptied 0", "2 dropped 0"})
	same(t, "tables", tables(t, db), []int{1, 3, 4, 5})
}

// What is dead, scheduled or parked does not keep its partition: it is moved
// out, found everywhere, and delivered with its content.
func TestContract_O11_WhatIsNotFinishedMovesOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	var well atomic.Bool
	sink := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && string(m.Payload) == `{"n":0}` && !well.Load() {
			return deed.AfterError(0, errors.New("cannot be"))
		}
		return nil
	}}
	queue := &recorder{fail: func(m deed.Message) error {
		if string(m.Payload) == `{"n":7}` && !well.Load() {
			return deed.AfterError(0, errors.New("nor this"))
		}
		return nil
	}}
	opts := stream(sink, func(o *deed.Options) {
		o.Subscriptions[0].MaxAttempts = 1
		o.Subscriptions = append(o.Subscriptions, deed.Subscription{Topic: "effects", Name: "q", Sink: queue, MaxAttempts: 1})
	})
	_, stop := runStream(t, db, opts)
	later := keyed("later", 0)
	later.ProcessAfter = time.Now().Add(time.Hour)
	early := message("effects", 8)
	early.ProcessAfter = later.ProcessAfter
	publish(t, db, keyed("bad", 0), keyed("bad", 1), keyed("good", 0), later, message("effects", 7), early)
	published := publish(t, db, keyed("bad", 2))
	eventually(t, "two to be dead, two parked, two scheduled", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select format('%s %s %s', count(*) filter (where dead_at is not null), count(*) filter (where parked), count(*) filter (where process_after > now()))
			from deed.pending`) == "2 2 2"
	})
	nextDay(t, db)
	publish(t, db, keyed("bad", 3), keyed("good", 1), keyed("good", 2), message("effects", 9))
	eventually(t, "another to be parked", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where parked`) == 3
	})
	eventually(t, "the rest to come", func() bool {
		n, _ := sink.counts()
		q, _ := queue.counts()
		return n == 3 && q == 1
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	older(t, db)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 6", "0 emptied 0", "0 dropped 0"})
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 6)

	operator, err := admin.New(ctx, db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := operator.Dead(ctx, admin.DeadFilter{})
	if err != nil || len(dead.Items) != 2 {
		t.Errorf("dead letters: %+v, %v", dead, err)
	}
	story, err := operator.Message(ctx, fmt.Sprint(published[0].Seq), true)
	if err != nil || string(story.Payload) != `{"n":2}` || story.States[0].State != "parked" {
		t.Errorf("message: %+v, %v", story, err)
	}
	blocked, err := operator.BlockedKeys(ctx, admin.BlockedFilter{Topic: "orders", Limit: 10})
	if err != nil || !slices.ContainsFunc(blocked.Items, func(b admin.BlockedKey) bool { return b.Key == "bad" && b.Behind == 3 }) {
		t.Errorf("blocked keys: %+v, %v", blocked, err)
	}
	for _, topic := range []string{"orders", "effects"} {
		if n, err := operator.Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: topic}}); n != 1 || err != nil {
			t.Errorf("redrive of %s: %d, %v", topic, n, err)
		}
	}
	well.Store(true)
	db.Exec(t, pgtest.Owner, `update deed.pending set process_after = now() where process_after > now()`)
	c, stop := runStream(t, db, opts)
	publish(t, db, keyed("bad", 4))
	drained(t, c)
	if err := stop(); err != nil { // what the relay's own retention has locked is passed over
		t.Fatal(err)
	}
	if n, repeats := sink.counts(); n != 9 || repeats != 0 {
		t.Errorf("%d messages of the stream came, %d again; want 9 and none", n, repeats)
	}
	if n, repeats := queue.counts(); n != 3 || repeats != 0 {
		t.Errorf("%d messages of the queue came, %d again; want 3 and none", n, repeats)
	}
	inOrder(t, sink.succeeded())
	var bad []string
	for _, m := range sink.succeeded() {
		if m.Key == "bad" {
			bad = append(bad, string(m.Payload))
		}
	}
	same(t, "contents", bad, []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`})
	retain(t, db, pgtest.Worker)
	same(t, "kept when all are finished", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 0)
}

// What is known of a stream's reading goes with age, but for where it stands;
// the rest still adds up, and a late commit is still found.
func TestContract_O11_HistoryGoesAndAddsUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	worker := db.Pool(pgtest.Worker)
	sink := &recorder{}
	c, stop := runStream(t, db, stream(sink))
	idle, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(ctx, idle, keyed("late", 0)); err != nil {
		t.Fatal(err)
	}
	count := 0
	round := func() {
		t.Helper()
		for range 20 {
			publish(t, db, keyed("a", 1), keyed("b", 2), keyed("c", 3))
			count += 3
			eventually(t, "them to come", func() bool { n, _ := sink.counts(); return n == count })
			// Pages that wait for their record become one row.
			eventually(t, "them to be recorded", func() bool {
				return pgtest.One[bool](t, worker, `select not exists (select from deed.lag(array(select id from deed.subscriptions where topic = 'orders'), 1) where behind > 0)`)
			})
		}
	}
	old := func() (n [2]int) {
		return [2]int{
			pgtest.One[int](t, worker, `select count(*) from deed.progress where finished_at < clock_timestamp() - interval '7 days'`),
			pgtest.One[int](t, worker, `select count(*) from deed.windows where n > 0 and opened_at < clock_timestamp() - interval '7 days'`),
		}
	}
	round()
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	before := [2]int{ // the relay may look after retention itself at any moment from here on
		pgtest.One[int](t, worker, `select count(*) from deed.progress`), pgtest.One[int](t, worker, `select count(*) from deed.windows where n > 0`),
	}
	db.Exec(t, pgtest.Owner, `update deed.progress set finished_at = finished_at - interval '8 days'`)
	db.Exec(t, pgtest.Owner, `update deed.windows set opened_at = opened_at - interval '8 days'`)
	round()
	// What a lane is just recording keeps the windows for the time being, and the renewal of its lease the rest.
	eventually(t, "what is old to go", func() bool {
		if _, err := tryRetain(t, db, pgtest.Worker); sqlState(err) == "55P03" {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
		after := old()
		return after[0] <= before[0]-20 && after[1] <= before[1]-10
	})
	if young := pgtest.One[int](t, worker, `select count(*) from deed.progress where finished_at >= clock_timestamp() - interval '7 days'`); young < 20 {
		t.Errorf("of what is young %d progress rows are left", young)
	}
	if err := idle.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	count++
	eventually(t, "the late one to come", func() bool { n, _ := sink.counts(); return n == count })
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	same(t, "violations", pgtest.One[int](t, worker, `select count(*) from deed.verify()`), 0)
	// It still adds up: a record that is changed is seen.
	tx, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, `
		update deed.progress g set messages = messages - 1
		where (subscription, lane, n) in (select subscription, lane, n from deed.progress where messages > 0 order by n desc limit 1)`); err != nil {
		t.Fatal(err)
	}
	same(t, "what verify says of a false record", pgtest.One[string](t, tx, `select coalesce(string_agg(invariant, ',' order by invariant), '') from deed.verify()`),
		"records of a lane do not add up,stream has left out messages")
}

// Who claims in SQL is given the content of moved messages, too.
func TestContract_O11_ClaimsFindMovedMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	publish(t, db, message("orders", 1), message("orders", 2))
	nextDay(t, db)
	older(t, db)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 2", "0 emptied 0", "0 dropped 0"})
	publish(t, db, message("orders", 3))
	var payloads []string
	got := claim(t, db.Pool(pgtest.Worker), "orders", "w", 9)
	for _, c := range got {
		payloads = append(payloads, c.Payload)
	}
	slices.Sort(payloads)
	same(t, "payloads", payloads, []string{`{"n":1}`, `{"n":2}`, `{"n":3}`})
	same(t, "finished", finish(t, db.Pool(pgtest.Worker), id, got[0].Claim, ids(got)...), 3)
}

// What retention moves while a claim is under way comes once, and so does what it had moved before.
func TestRetention_ClaimsBesideWhatIsMoved(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	publish(t, db, message("orders", 1), message("orders", 2))
	nextDay(t, db)
	older(t, db)
	for range 2 { // it begins, and moves the first
		db.Exec(t, pgtest.Worker, `select deed.retention_step(1)`)
	}
	same(t, "moved", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`), 1)
	// The second is moved between any two statements of the claim that come after it has written down what it claims.
	db.Exec(t, pgtest.Owner, `
		create function public.moves() returns trigger language plpgsql security definer as $$
		begin
			perform deed.retention_step(1);
			return null;
		end
		$$`)
	db.Exec(t, pgtest.Owner, `create trigger moves after update on deed.pending for each statement execute function public.moves()`)
	var payloads []string
	for _, c := range claim(t, db.Pool(pgtest.Worker), "orders", "w", 9) {
		payloads = append(payloads, c.Payload)
	}
	slices.Sort(payloads)
	same(t, "payloads", payloads, []string{`{"n":1}`, `{"n":2}`})
	same(t, "moved", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`), 2)
}

// A subscription that begins at the beginning takes over what the default one
// holds, moved or not.
func TestContract_O11_BackfillFindsMovedMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	publish(t, db, message("orders", 1), message("orders", 2))
	nextDay(t, db)
	older(t, db)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 2", "0 emptied 0", "0 dropped 0"})
	publish(t, db, message("orders", 3))
	subscribe(t, db, "orders", "s")
	same(t, "claimed", len(claim(t, db.Pool(pgtest.Worker), "orders", "w", 9)), 3)
	same(t, "left with the default subscription", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where subscription = 0`), 0)
}

// What a stream or a backfill has still to read keeps its partition.
func TestContract_O11_UnreadKeepsItsPartition(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, stop := runStream(t, db, stream(sink))
	publish(t, db, keyed("a", 1), keyed("b", 2))
	drained(t, c)
	nextDay(t, db)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	publish(t, db, keyed("a", 3), keyed("b", 4))
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 0", "0 emptied 0", "0 dropped 0"})
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := operator.Partitions(t.Context())
	if err != nil || list[0].N != 1 || list[0].State != "kept" || len(list[0].KeptBy) != 2 || list[0].Overdue <= 0 || list[1].State != "in use" {
		t.Errorf("partitions: %+v, %v", list, err)
	}
	// Or the relay takes the steps itself, at any moment of its first minute.
	held := openTx(t, db, pgtest.Owner, `lock table deed.retention_lock in share update exclusive mode`)
	c, stop = runStream(t, db, stream(sink))
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "steps when it is read", retain(t, db, pgtest.Worker), []string{"1 began 0", "1 moved 0", "1 emptied 0", "1 dropped 0"})

	// A new one that begins at the beginning.
	publish(t, db, keyed("a", 5), keyed("b", 6))
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'second', 'beginning')`)
	same(t, "steps while a subscription begins", retain(t, db, pgtest.Worker), []string{})
	if n, repeats := sink.counts(); n != 4 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
}

// Row-level security is forced on the owner, too: one that is no superuser sees
// the rows of a partition only through the log.
func TestContract_O11_OwnerWhoIsNoSuperuser(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	heir := bequeath(t, db)
	if _, err := conn.Exec(t.Context(), `set role `+heir); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	publish(t, db, message("orders", 1), message("orders", 2))
	nextDay(t, db)
	older(t, db)
	step := func() string {
		t.Helper()
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `select did || ' ' || messages from deed.retention_step()`)
	}
	for _, want := range []string{"began 0", "moved 2", "emptied 0"} {
		same(t, "step", step(), want)
	}
	late := func(table string, id int) {
		t.Helper()
		db.Exec(t, pgtest.Owner, fmt.Sprintf(`
			insert into deed.%s
			select %d, pg_current_xact_id(), %[2]d, 1, tenant_id, now(), null, topic, null, null, null, content_type, null, payload
			from deed.kept limit 1`, table, id))
		db.Exec(t, pgtest.Owner, fmt.Sprintf(`
			insert into deed.pending (subscription, slot, id, tenant_id, ord_at)
			values (0, %d, %[1]d, '00000000-0000-0000-0000-000000000000', now())`, id))
	}
	late("log", 9)
	for _, want := range []string{"began 0", "began 0", "moved 1", "emptied 0"} {
		same(t, "step", step(), want)
		tx, err := db.Pool(pgtest.Worker).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, "claimed after "+want, pgtest.One[int](t, tx, `select count(*) from deed.claim(null, 'w', 9)`), 3) // what has been moved is found, though it begins anew
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, pgtest.Owner, `alter table deed.log detach partition deed.log_p0 concurrently`)
	late("log_p0", 10)
	for _, want := range []string{"began 0", "began 0", "moved 1", "emptied 0", "dropped 0"} {
		same(t, "step", step(), want)
		if want == "began 0" && !pgtest.One[bool](t, db.Pool(pgtest.Owner), `select relforcerowsecurity from pg_class where oid = 'deed.log_p0'::regclass`) {
			t.Error("the partition that stays is not forced any more")
		}
	}
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 4)
}
