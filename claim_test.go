package deed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// One signature per function: the migration counts them, and so does this.
func TestContract_O2_OneSignaturePerFunction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	twice := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(p.proname, ', '), '')
		from (select proname from pg_proc where pronamespace = 'deed'::regnamespace group by proname having count(*) > 1) p`)
	if twice != "" {
		t.Errorf("functions with several signatures: %s", twice)
	}
}

// process_after is the only column anywhere that schedules a message.
func TestContract_O5_OneFieldSchedules(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	columns := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(table_name || '.' || column_name, ', '), '')
		from information_schema.columns
		where table_schema = 'deed'
		  and not (table_name = 'delivery_feedback' and column_name in ('delivered_at', 'last_delivered_at')) -- when it was, as the provider says
		  and (column_name ~ '(retry|attempt|run|scheduled|visible|available|not_before|deliver|next).*(at|after|until)$' or column_name ~ '^next')`)
	if columns != "" {
		t.Errorf("columns that could schedule beside process_after: %s", columns)
	}

	id := subscribe(t, db, "orders", "s")
	now, later := message("orders", 1), message("orders", 2)
	later.ProcessAfter = time.Now().Add(time.Hour)
	publish(t, db, later, now)
	worker := db.Pool(pgtest.Worker)
	if got := claim(t, worker, "orders", "w", 10); len(got) != 1 || got[0].Payload != `{"n":1}` {
		t.Fatalf("claimed %+v, want the one that is due", got)
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set process_after = clock_timestamp() - interval '1 second' where subscription = $1 and process_after is not null`, id)
	if got := claim(t, worker, "orders", "w", 10); len(got) != 1 || got[0].Payload != `{"n":2}` {
		t.Fatalf("claimed %+v, want the one that has become due", got)
	}
}

func TestContract_O6_OldestFirstAndOnlyWhatIsFree(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	subscribe(t, db, "other", "s")
	worker := db.Pool(pgtest.Worker)
	for n := range 10 {
		publish(t, db, message("orders", n), message("other", n))
	}
	first := claim(t, worker, "orders", "w1", 4)
	second := claim(t, worker, "orders", "w2", 100)
	got := append(ids(first), ids(second)...)
	if len(got) != 10 || !slices.IsSorted(got) {
		t.Errorf("claimed %v and %v: want all ten, oldest first", ids(first), ids(second))
	}
	if more := claim(t, worker, "orders", "w3", 100); len(more) != 0 {
		t.Errorf("%v were claimed twice", ids(more))
	}
	if none := claim(t, worker, "orders", "w3", 0); len(none) != 0 {
		t.Errorf("a claim of zero returned %v", ids(none))
	}
	if _, err := tryClaim(worker, "orders", "w", -1); sqlState(err) != "DDARG" {
		t.Errorf("a claim of -1: %v, want SQLSTATE DDARG", err)
	}
	if _, err := tryClaim(worker, "nowhere", "w", 1); sqlState(err) != "DDNFD" {
		t.Errorf("a claim of an unknown topic: %v, want SQLSTATE DDNFD", err)
	}
	if _, err := tryClaim(worker, "orders", "", 1); sqlState(err) != "DDARG" {
		t.Errorf("a claim by nobody: %v, want SQLSTATE DDARG", err)
	}

	// Only a lease that has run out frees a claimed message.
	db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1 and id = any($2)`, id, ids(first)[:2])
	if back := claim(t, worker, "orders", "w3", 100); !slices.Equal(ids(back), ids(first)[:2]) {
		t.Errorf("claimed %v, want the two whose lease has run out: %v", ids(back), ids(first)[:2])
	}
}

// A claimer never waits for a row that another transaction holds.
func TestContract_O6_ClaimersNeverWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	for n := range 6 {
		publish(t, db, message("orders", n))
	}
	tx, err := db.Pool(pgtest.Worker).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	held := pgtest.One[[]int64](t, tx, `select array_agg(id) from deed.claim('orders', 'w1', 3, 's')`)
	conn := db.Conn(t, pgtest.Worker)
	if _, err := conn.Exec(ctx, `set lock_timeout = '100ms'`); err != nil {
		t.Fatal(err)
	}
	free := pgtest.One[[]int64](t, conn, `select array_agg(id) from deed.claim('orders', 'w2', 10, 's')`)
	if len(held) != 3 || len(free) != 3 || slices.ContainsFunc(free, func(id int64) bool { return slices.Contains(held, id) }) {
		t.Errorf("one transaction holds %v, the other got %v", held, free)
	}
}

// Two claimers never get the same message: 16 of them drain 4,000.
func TestContract_O6_SixteenClaimers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	msgs := make([]deed.Message, 4000)
	for n := range msgs {
		msgs[n] = message("orders", n)
	}
	publish(t, db, msgs...)
	var mu sync.Mutex
	owners := map[int64]int{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				got, err := tryClaim(db.Pool(pgtest.Worker), "orders", "w", 37)
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, c := range got {
					owners[c.ID]++
				}
				mu.Unlock()
				if n := finish(t, db.Pool(pgtest.Worker), id, got[0].Claim, ids(got)...); n != len(got) {
					t.Errorf("finished %d of %d", n, len(got))
				}
			}
		})
	}
	wg.Wait()
	for id, n := range owners {
		if n != 1 {
			t.Errorf("message %d was claimed %d times", id, n)
		}
	}
	if len(owners) != len(msgs) {
		t.Errorf("%d of %d messages were claimed", len(owners), len(msgs))
	}
}

func TestContract_O7_FinishNeedsTheClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	for n := range 5 {
		publish(t, db, message("orders", n))
	}
	worker := db.Pool(pgtest.Worker)
	mine := claim(t, worker, "orders", "w", 3)
	theirs := claim(t, worker, "orders", "w", 2) // the same worker: names fence nothing
	if n := finish(t, worker, id, mine[0].Claim+1000, ids(mine)...); n != 0 {
		t.Errorf("a wrong claim finished %d", n)
	}
	if n := finish(t, worker, id, mine[0].Claim, ids(theirs)...); n != 0 {
		t.Errorf("one claim finished %d messages of another", n)
	}
	if n := finish(t, worker, id, mine[0].Claim, append(ids(mine), theirs[0].ID)...); n != 3 {
		t.Errorf("finished %d, want the 3 that are its own", n)
	}
	if n := finish(t, worker, id, mine[0].Claim, ids(mine)...); n != 3 {
		t.Errorf("the same finish again, as after a lost answer, says %d, want 3", n)
	}
	left := pgtest.One[[]int64](t, db.Pool(pgtest.Owner), `select array_agg(id order by id) from deed.pending where subscription = $1`, id)
	if !slices.Equal(left, ids(theirs)) {
		t.Errorf("%v are pending, want %v", left, ids(theirs))
	}
}

// After the n-th failure the next attempt is due in 2^min(n, 10) seconds, less
// at most half of that.
func TestContract_O8_BackOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	publish(t, db, message("orders", 1))
	for n := 1; n <= 12; n++ {
		got := claim(t, worker, "orders", "w", 1)
		if len(got) != 1 || got[0].Attempts != n-1 {
			t.Fatalf("before failure %d: claimed %+v", n, got)
		}
		var attempts int
		var dead bool
		var due time.Time
		before := clock(t, db)
		err := worker.QueryRow(context.Background(), `
			select f.attempts, f.dead, f.process_after
			from deed.fail($1, $2, $3, array['it broke']) f`, id, got[0].Claim, ids(got)).Scan(&attempts, &dead, &due)
		if err != nil {
			t.Fatal(err)
		}
		step := time.Second << min(n, 10)
		if attempts != n || dead || due.Before(before.Add(step/2)) || due.After(clock(t, db).Add(step)) {
			t.Errorf("failure %d: attempts %d, dead %t, due in %s; want at most %s and at least half", n, attempts, dead, due.Sub(before), step)
		}
		state := pgtest.One[string](t, owner, `select last_error || num_nulls(claim, claimed_at, claimed_by, lease_until) from deed.pending where subscription = $1`, id)
		if state != "it broke4" {
			t.Errorf("failure %d: error and cleared claim columns are %q", n, state)
		}
		if more := claim(t, worker, "orders", "w", 1); len(more) != 0 { // on a busy machine it may be due by now
			if pgtest.One[bool](t, owner, `select claimed_at < $2 from deed.pending where subscription = $1`, id, due) {
				t.Errorf("failure %d: claimable before it is due", n)
			}
		}
		db.Exec(t, pgtest.Owner, `
			update deed.pending set process_after = clock_timestamp(), claim = null, claimed_at = null, claimed_by = null, lease_until = null
			where subscription = $1`, id)
	}
}

// clock is the time by the database's clock.
func clock(t testing.TB, db *pgtest.DB) time.Time {
	t.Helper()
	return pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select clock_timestamp()`)
}

func TestContract_O8_WhatTheHandlerAsksFor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	for n := range 5 {
		publish(t, db, message("orders", n))
	}
	worker := db.Pool(pgtest.Worker)
	got := claim(t, worker, "orders", "w", 5)
	before := clock(t, db)
	rows, err := worker.Query(context.Background(), `
		select f.attempts, f.dead, f.process_after
		from deed.fail($1, $2, $3, array['a', 'b', 'c', null, 'e'],
		  array['90 seconds', null, null, null, '10 seconds']::interval[],
		  array['retry', 'discard', 'outage', 'release', 'outage']) f
		order by f.id`, id, got[0].Claim, ids(got))
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Attempts int
		Dead     bool
		Due      *time.Time
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[outcome])
	if err != nil {
		t.Fatal(err)
	}
	after := clock(t, db)
	want := []struct {
		attempts int
		dead     bool
		wait     time.Duration // 0: none
	}{{1, false, 90 * time.Second}, {1, true, 0}, {0, false, 0}, {0, false, 0}, {0, false, 10 * time.Second}}
	if len(list) != len(want) {
		t.Fatalf("%d outcomes, want %d", len(list), len(want))
	}
	for i, w := range want {
		got := list[i]
		due := got.Due == nil
		if w.wait > 0 {
			due = got.Due != nil && !got.Due.Before(before.Add(w.wait)) && !got.Due.After(after.Add(w.wait))
		}
		if got.Attempts != w.attempts || got.Dead != w.dead || !due {
			t.Errorf("outcome %d: attempts %d, dead %t, due %v; want %+v from %s to %s", i, got.Attempts, got.Dead, got.Due, w, before, after)
		}
	}
	if errs := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(coalesce(last_error, '-'), ',' order by id) from deed.pending where subscription = $1`, id); errs != "a,b,c,-,e" {
		t.Errorf("kept errors %s", errs)
	}
	if again := pgtest.One[int](t, worker, `select count(*) from deed.fail($1, $2, $3, array['x', 'x', 'x', 'x', 'x'])`, id, got[0].Claim, ids(got)); again != 0 {
		t.Errorf("the same claim failed %d messages a second time", again)
	}
}

func TestContract_O9_DeadLetterAndRedrive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's', p_max_attempts => 3)`)
	scan(t, db, id)
	publish(t, db, message("orders", 1), message("orders", 2))
	for n := 1; n <= 3; n++ {
		got := claim(t, worker, "orders", "w", 1)
		if len(got) != 1 || got[0].Payload != `{"n":1}` {
			t.Fatalf("attempt %d claimed %+v", n, got)
		}
		dead := pgtest.One[bool](t, worker, `select dead from deed.fail($1, $2, $3, array['no'], array['0 seconds']::interval[])`, id, got[0].Claim, ids(got))
		if dead != (n == 3) {
			t.Errorf("after %d attempts: dead %t", n, dead)
		}
		db.Exec(t, pgtest.Owner, `update deed.pending set process_after = clock_timestamp() - interval '1 hour' where subscription = $1 and attempts > 0`, id)
	}
	if got := claim(t, worker, "orders", "w", 10); len(got) != 1 || got[0].Payload != `{"n":2}` {
		t.Fatalf("claimed %+v, want only the message that is not dead", got)
	}
	c, err := admin.New(ctx, db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := c.Dead(ctx, admin.DeadFilter{Topic: "orders"})
	if err != nil || len(dead.Items) != 1 || dead.Items[0].LastError != "no" || dead.Items[0].Attempts != 3 {
		t.Fatalf("dead letters %+v, %v", dead, err)
	}
	for _, dry := range []bool{true, false} {
		if n, err := c.Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}, DryRun: dry}); n != 1 || err != nil {
			t.Errorf("redrive, dry %t: %d, %v", dry, n, err)
		}
	}
	if got := claim(t, worker, "orders", "w", 10); len(got) != 1 || got[0].Attempts != 0 || got[0].Payload != `{"n":1}` {
		t.Errorf("after the redrive claimed %+v", got)
	}
	if n, err := c.Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}}); n != 0 || err != nil {
		t.Errorf("nothing is dead, and redrive says %d, %v", n, err)
	}
	if _, err := c.Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "nowhere"}}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("redrive of an unknown topic: %v", err)
	}
	if _, err := c.Redrive(ctx, admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders", Limit: -1}}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("redrive of -1: %v", err)
	}
}

func TestContract_O10_ClaimOfOneTenant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for n, id := range []tenant.ID{a, b, a, b} {
		err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
			if err := tenant.Set(ctx, tx, id); err != nil {
				return err
			}
			_, err := deed.Publish(ctx, tx, message("orders", n))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	worker := db.Pool(pgtest.Worker)
	if got := claim(t, worker, "orders", "w", 10, b.String()); len(got) != 2 || got[0].Payload != `{"n":1}` || got[1].Payload != `{"n":3}` {
		t.Errorf("tenant b's claim got %+v", got)
	}
	if got := claim(t, worker, "orders", "w", 10); len(got) != 2 || got[0].Payload != `{"n":0}` {
		t.Errorf("the claim of all tenants got %+v", got)
	}
}

// A claim that takes over one that had run out says so, and no later one does: not one after a retry, nor one of
// what was put aside and stood behind what was claimed.
func TestContract_O14_OnlyOneTakesOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1))
	worker := db.Pool(pgtest.Worker)
	runOut := func(id int) {
		db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1 and claim is not null`, id)
	}
	claim(t, worker, "orders", "first", 1)
	runOut(id)
	second := claim(t, worker, "orders", "second", 1)
	same(t, "claims lost, says the one that takes over", second[0].Lost, 1)
	pgtest.One[int](t, worker, `select count(*) from deed.fail($1, $2, $3, '{later}', array[interval '0'])`, id, second[0].Claim, ids(second))
	third := claim(t, worker, "orders", "third", 1)
	same(t, "claims lost, says the one after a retry", third[0].Lost, 0)
	runOut(id)
	same(t, "claims lost, says the next one that takes over", claim(t, worker, "orders", "fourth", 1)[0].Lost, 2)

	db.Exec(t, pgtest.Worker, `select deed.declare_topic('kept', 'stream')`)
	stream := pgtest.One[int](t, worker, `select subscription from deed.subscribe('kept', 's')`)
	for n, parked := range []bool{false, true} {
		seq := publish(t, db, deed.Message{Topic: "kept", Key: "k", Value: n})[0].Seq
		db.Exec(t, pgtest.Owner, `
			insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash, parked)
			select $1, l.slot, l.id, l.tenant_id, l.created_at, deed.key_hash(l.tenant_id, l.key), $3 from deed.log l where l.id = $2`, stream, seq, parked)
	}
	attend := func() string {
		return pgtest.One[string](t, worker, `
			select coalesce(string_agg(lost_claims::text, ', ' order by id), 'none') from deed.attend($1, 'w', 10, '{0}', '{1073741824}', '1 hour')`, stream)
	}
	same(t, "what is aside, at first", attend(), "0, 0")
	runOut(stream)
	same(t, "what is aside, taken over", attend(), "1, 1")
	db.Exec(t, pgtest.Worker, `
		select count(*) from (select claim, array_agg(id order by id) as ids from deed.pending where subscription = $1 group by claim) p,
			deed.fail($1, p.claim, p.ids, '{later,later}', p_outcomes => '{release,release}')`, stream)
	same(t, "what is aside, given back and claimed", attend(), "0, 0")
}

// A worker that lost its claim finishes, fails and renews nothing, although it
// has the same name, and its attempt to is counted.
func TestContract_O14_TheStaleOwnerComesBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1))
	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	stale := claim(t, worker, "orders", "same-name", 1)
	db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1`, id)
	if held := pgtest.One[[]int64](t, worker, `select deed.extend($1, $2, $3)`, id, stale[0].Claim, ids(stale)); len(held) != 1 {
		t.Errorf("a lease that ran out but was not taken over cannot be renewed")
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1`, id)
	fresh := claim(t, worker, "orders", "same-name", 1)
	if len(fresh) != 1 || fresh[0].Lost != 1 {
		t.Fatalf("the second claim is %+v, want the message with one lost claim", fresh)
	}
	if held := pgtest.One[[]int64](t, worker, `select deed.extend($1, $2, $3)`, id, stale[0].Claim, ids(stale)); len(held) != 0 {
		t.Errorf("the stale owner renewed %v", held)
	}
	if n := pgtest.One[int](t, worker, `select count(*) from deed.fail($1, $2, $3, array['late'])`, id, stale[0].Claim, ids(stale)); n != 0 {
		t.Errorf("the stale owner failed %d messages", n)
	}
	if n := finish(t, worker, id, stale[0].Claim, ids(stale)...); n != 0 {
		t.Errorf("the stale owner finished %d messages", n)
	}
	if n := pgtest.One[int](t, owner, `select sum(lost) from deed.receipts where claim = $1`, stale[0].Claim); n != 1 {
		t.Errorf("%d stale finishes are counted, want 1", n)
	}
	if n := finish(t, worker, id, fresh[0].Claim, ids(fresh)...); n != 1 {
		t.Errorf("the owner finished %d messages", n)
	}
}

func TestContract_O16_EveryFinishHasAReceipt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	for n := range 5 {
		publish(t, db, message("orders", n))
	}
	worker := db.Pool(pgtest.Worker)
	got := claim(t, worker, "orders", "worker-7", 5)
	pgtest.One[int](t, worker, `select deed.finish($1, $2, $3, 2)`, id, got[0].Claim, ids(got)[:3])
	var by string
	var done []int64
	var finished, failed int
	var claim int64
	var recent bool
	err := db.Pool(pgtest.Owner).QueryRow(ctx, `
		select worker, ids, finished, failed, claim, finished_at between clock_timestamp() - interval '1 minute' and clock_timestamp()
		from deed.receipts where subscription = $1`, id).Scan(&by, &done, &finished, &failed, &claim, &recent)
	if err != nil {
		t.Fatal(err)
	}
	if by != "worker-7" || !slices.Equal(done, ids(got)[:3]) || finished != 3 || failed != 2 || claim != got[0].Claim || !recent {
		t.Errorf("the receipt says worker %s, ids %v, finished %d, failed %d, claim %d", by, done, finished, failed, claim)
	}
	c, err := admin.New(ctx, db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	published, err := c.Messages(ctx, admin.Filter{Topic: "orders"})
	if err != nil || len(published.Items) != 5 {
		t.Fatal(published, err)
	}
	story, err := c.Message(ctx, published.Items[4].ID.String(), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(story.States) != 1 || story.States[0].State != "delivered" || story.States[0].Worker != "worker-7" || story.States[0].DeliveredAt == nil {
		t.Errorf("the message's story is %+v", story.States)
	}
	if string(story.Payload) != `{"n":0}` {
		t.Errorf("its payload is %s", story.Payload)
	}
	if story, err := c.Message(ctx, published.Items[0].ID.String(), false); err != nil || story.States[0].State != "claimed" || story.Payload != nil {
		t.Errorf("a claimed message's story is %+v, %v", story, err)
	}
}

// A message that kills its worker is counted at the claim: from the second
// lost claim on it is claimed alone, and after max_attempts + 10 it is dead.
func TestContract_O17_MessageThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	id := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's', p_max_attempts => 2)`)
	scan(t, db, id)
	publish(t, db, message("orders", 0), message("orders", 1), message("orders", 2))
	expire := func() {
		db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1 and claim is not null`, id)
	}
	for lost := range 2 {
		got := claim(t, worker, "orders", "w", 10)
		if len(got) != 3 || got[0].Lost != lost {
			t.Fatalf("after %d lost claims: claimed %+v, want all three", lost, got)
		}
		expire()
	}
	poison := int64(0)
	for lost := 2; lost < 12; lost++ {
		got := claim(t, worker, "orders", "w", 10)
		if len(got) != 1 || got[0].Lost != lost {
			t.Fatalf("after %d lost claims: claimed %+v, want the oldest alone", lost, got)
		}
		poison = got[0].ID
		if lost == 2 { // the two innocent ones are let go
			for range 2 {
				other := claim(t, worker, "orders", "w", 10)
				if len(other) != 1 || other[0].ID == poison {
					t.Fatalf("claimed %+v beside the suspect", other)
				}
				finish(t, worker, id, other[0].Claim, other[0].ID)
			}
		}
		expire()
	}
	if got := claim(t, worker, "orders", "w", 10); len(got) != 0 {
		t.Fatalf("after max_attempts + 10 lost claims it was claimed again: %+v", got)
	}
	var attempts, lost int
	var reason string
	err := db.Pool(pgtest.Owner).QueryRow(context.Background(),
		`select attempts, lost_claims, last_error from deed.pending where subscription = $1 and dead_at is not null`, id).Scan(&attempts, &lost, &reason)
	if err != nil {
		t.Fatal(err)
	}
	if attempts != 0 || lost != 12 || reason == "" {
		t.Errorf("dead with %d attempts, %d lost claims, reason %q", attempts, lost, reason)
	}
}

// Before what a claim hands out is used, it has been flushed, whatever the
// session's synchronous_commit is.
func TestClaim_FlushesUnderAsynchronousCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1))
	conn := db.Conn(t, pgtest.Worker)
	if _, err := conn.Exec(ctx, `set synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	pgtest.One[int](t, tx, `select count(*) from deed.claim('orders', 'w', 1, 's')`)
	if got := pgtest.One[string](t, tx, `show synchronous_commit`); got != "on" {
		t.Errorf("the transaction that claimed commits with synchronous_commit = %s", got)
	}
}
