package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A call that takes longer than the lease keeps its claim: it is made once and
// is never in doubt.
func TestLedger_SlowCallKeepsItsClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	goOn := make(chan struct{})
	let := sync.OnceFunc(func() { close(goOn) })
	f.send = func(ctx context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Lease = 15 * time.Second // renewed each five: on a busy machine none runs out
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute}
	made := reserve(t, db, email("a@one.example"), email("b@two.example"))
	run(t, db, opts)
	run(t, db, opts) // who would take it over
	t.Cleanup(let)
	owner := db.Pool(pgtest.Owner)
	eventually(t, "both calls to be under way", func() bool { return f.called(made[0].ID) > 0 && f.called(made[1].ID) > 0 })
	first := pgtest.One[time.Time](t, owner, `select max(lease_until) from deed.channel_outbox`)
	eventually(t, "the leases to be over under which they began", func() bool {
		return pgtest.One[bool](t, owner, `select clock_timestamp() > $1`, first)
	})
	let()
	for _, m := range made {
		if e := until(t, db, m.ID, delivery.Sent); e.Attempts != 1 || f.called(e.ID) != 1 {
			t.Errorf("%d attempts, %d calls", e.Attempts, f.called(e.ID))
		}
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.audit_log where action = 'doubt'`); n != 0 {
		t.Errorf("%d were in doubt", n)
	}
}

// A renewal passes over a row that somebody has locked, and renews the others; and one whose lease is over by then is the caller's still when it
// is asked for once more and was let go. Its call is not cancelled, and it is not in doubt.
func TestLedger_ARowThatIsLockedWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	under, goOn := make(chan struct{}, 2), make(chan struct{})
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "first@example.com" {
			return delivery.Accepted("m"), true
		}
		under <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
			t.Errorf("the call to %s was cut short: %v", r.Recipient(), context.Cause(ctx))
		}
		return delivery.Accepted("m"), true
	}
	first := reserve(t, db, email("first@example.com")) // until it is sent, nothing is known of the destination, and it gets one call
	hold := db.Hold(t, pgtest.Worker, 8, "extend_deliveries")
	opts := fast(f)
	opts.Lease, opts.PollInterval = 15*time.Second, time.Hour // nobody claims it meanwhile
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute}
	l, _ := runOn(t, hold.Pool, opts)
	until(t, db, first[0].ID, delivery.Sent)
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	eventually(t, "both calls to be under way", func() bool { l.Wake(); return len(under) == 2 })
	owner := db.Pool(pgtest.Owner)
	letGo := hold.Lock(`select from deed.channel_outbox where id = $1::text::uuid for update`, `select lease_until - clock_timestamp() from deed.channel_outbox where id = $1::text::uuid`, made[0].ID, func() {
		if !pgtest.One[bool](t, owner, `select lease_until > clock_timestamp() from deed.channel_outbox where id = $1::text::uuid`, made[1].ID) {
			t.Error("the lease of the other is over, too: its renewal has waited for the row that is locked")
		}
	})
	<-letGo
	eventually(t, "it to be renewed", func() bool {
		return pgtest.One[bool](t, owner, `select lease_until > clock_timestamp() from deed.channel_outbox where id = $1::text::uuid`, made[0].ID)
	})
	close(goOn)
	for _, m := range made {
		if e := until(t, db, m.ID, delivery.Sent); e.Attempts != 1 || f.called(e.ID) != 1 {
			t.Errorf("%s: %d attempts, %d calls", e.Recipient, e.Attempts, f.called(e.ID))
		}
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.audit_log where action = 'doubt'`); n != 0 {
		t.Errorf("%d were in doubt", n)
	}
}

// A stop waits for the calls under way and settles them.
func TestLedger_StopWaitsForCalls(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	under, goOn := make(chan struct{}, 3), make(chan struct{})
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		under <- struct{}{}
		<-goOn
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Concurrency: 1}
	made := reserve(t, db, email("a@example.com"), email("b@example.com"), email("c@example.com"))
	l := ledger(t, db, opts)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	<-under
	cancel() // the stop has begun when the call ends
	close(goOn)
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	counts := map[delivery.Status]int{}
	for _, m := range made {
		e := entry(t, db, m.ID)
		counts[e.Status]++
		if e.Status == delivery.Queued && (e.Attempts != 0 || e.ClaimedBy != "") {
			t.Errorf("not given back: %+v", e)
		}
	}
	if counts[delivery.Sent] != 1 || counts[delivery.Queued] != 2 {
		t.Errorf("%v", counts)
	}
}

// An attempt that was written and whose answer was lost is taken back: nobody
// was called, and no attempt counts.
func TestLedger_AnAttemptIsTakenBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	made := reserve(t, db, email("a@example.com"))
	var claim int64
	if err := worker.QueryRow(ctx, `select claim from deed.claim_deliveries('fake', 'w', 1, '1 minute')`).Scan(&claim); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`select from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w')`,
		`select from deed.settle(array[$1::text::uuid], array[$2::bigint], '{release}', '{null}', '{null}', '{null}', 'w')`,
		`select from deed.settle(array[$1::text::uuid], array[$2::bigint], '{release}', '{null}', '{null}', '{null}', 'w')`, // again, harmless
	} {
		if _, err := worker.Exec(ctx, sql, made[0].ID, claim); err != nil {
			t.Fatal(err)
		}
	}
	if e := entry(t, db, made[0].ID); e.Status != delivery.Queued || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	run(t, db, fast(newFake()))
	if e := until(t, db, made[0].ID, delivery.Sent); e.Attempts != 1 {
		t.Errorf("%d attempts", e.Attempts)
	}
}

// What is over and old is removed; what has failed, belongs to a run, or is not
// over never is.
func TestPurge(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "failed@example.com" {
			return delivery.Refused(errors.New("no")), false
		}
		return delivery.Accepted("m"), true
	}
	later := email("later@example.com")
	later.ProcessAfter = time.Now().Add(time.Hour)
	made := reserve(t, db, email("old@example.com"), email("failed@example.com"), email("run@example.com"), later, email("new@example.com"))
	ofRun(t, db, made[2].ID, "00000000-0000-4000-8000-000000000001")
	l, stop := run(t, db, fast(f))
	drained(t, l)
	stop()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set finished_at = finished_at - interval '40 days' where id <> $1::text::uuid and finished_at is not null`, made[4].ID)
	worker := db.Pool(pgtest.Worker)
	if n := pgtest.One[int](t, worker, `select deed.purge_deliveries('30 days', 100, 'w')`); n != 1 {
		t.Errorf("%d were removed, want 1", n)
	}
	left, err := l.List(ctx, delivery.Filter{})
	if err != nil || len(left.Items) != 4 {
		t.Errorf("%d left, %v", len(left.Items), err)
	}
	if _, err := worker.Exec(ctx, `select deed.purge_deliveries('1 hour', 100, 'w')`); sqlState(err) != "DDARG" {
		t.Errorf("an age below a day: %v", err)
	}
}

// What was reserved before every domain had a lane is put into its own.
func TestRelane_IntoTheDomainsLanes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	reserve(t, db, email("a@slow.example"), email("b@other.example"))
	lanes := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(lane, ',' order by recipient) from deed.channel_outbox`)
	}
	if got := lanes(); got != "slow.example,other.example" {
		t.Errorf("lanes %q", got)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lane = '', payload_bytes = null`)
	moved := 0
	for {
		n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.relane_deliveries('fake', 1)`)
		if moved += n; n == 0 {
			break
		}
	}
	if got := lanes(); got != "slow.example,other.example" || moved != 2 {
		t.Errorf("%d moved to lanes %q", moved, got)
	}
}

// Without prepared statements, as a pooler in transaction mode may want it.
func TestLedger_ExecMode(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	url := db.URL(pgtest.Worker)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	pool, err := pgxpool.New(ctx, url+separator+"default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake().withKey(time.Hour)
	f.send = cutOnce
	l, err := delivery.New(ctx, pool, fast(f))
	if err != nil {
		t.Fatal(err)
	}
	written := channelMessage(t, db)
	var list []delivery.Delivery
	for i := range 20 {
		d := email(fmt.Sprintf("%d@example.com", i))
		d.CorrelationID, d.ChannelMessageID, d.ProcessAfter, d.MaxAttempts = "c", written, time.Now(), 7
		list = append(list, d)
	}
	db.Providers(t, "fake", "fake")
	if _, err := delivery.Reserve(ctx, pool, list...); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() { result <- l.Run(running) }()
	drained(t, l)
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if n, err := delivery.Suppress(ctx, pool, nil, delivery.Coverage{Channel: delivery.Email}, []string{"x@y.z"}, audit.Act{By: "ann", Reason: "asked to"}); n != 1 || err != nil {
		t.Error(n, err)
	}
	pool.Close()
	if n, repeats := f.acceptances(); n != 20 || repeats != 0 {
		t.Errorf("%d accepted, %d repeats", n, repeats)
	}
}

// An attempt that took longer to write than the lease lasts is not called: it
// may be in doubt by now, and settled. Whether its worker takes it back first or
// somebody finds it in doubt, it is called once, under a lease that holds.
func TestLedger_NoCallAfterTheLease(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		var holds bool
		err := db.Pool(pgtest.Owner).QueryRow(ctx, `select lease_until > clock_timestamp() from deed.channel_outbox where id = $1::text::uuid`, r.ID()).Scan(&holds)
		if err != nil || !holds {
			t.Errorf("called while its lease holds: %t, %v", holds, err)
		}
		return delivery.Accepted("m"), true
	}
	// The table that an attempt reads last is locked for longer than the lease,
	// which is long enough for the call that comes later, on a busy machine too.
	again := email("a@example.com")
	again.Guarantee = delivery.AtLeastOnce
	made := reserve(t, db, again)
	opts := fast(f)
	opts.Lease = 15 * time.Second
	l := ledger(t, db, opts)
	tx, err := db.Pool(pgtest.Owner).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(context.Background(), `lock table deed.suppressions in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	}()
	eventually(t, "the attempt to be written for longer than its lease", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (
			select from pg_locks l join pg_stat_activity a using (pid)
			where not l.granted and l.relation = 'deed.suppressions'::regclass and a.datname = current_database() and a.query like '%deed.attempt(%' and a.query_start + interval '15.2 seconds' < clock_timestamp())`)
	})
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	if e := until(t, db, made[0].ID, delivery.Sent); f.called(e.ID) != 1 {
		t.Errorf("%d calls", f.called(e.ID))
	}
}

// Whoever changes a row while its attempt or its outcome waits for it, such as a
// change of lanes, does not make it pass over the row.
func TestLedger_ARowThatMovesIsNotPassedOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	made := reserve(t, db, email("a@example.com"))
	claim := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select claim from deed.claim_deliveries('fake', 'w', 1, interval '1 minute')`)
	for _, step := range []struct{ sql, want string }{
		{`select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, interval '1 minute', 'w')`, "sending"},
		{`select status from deed.settle(array[$1::text::uuid], array[$2::bigint], array['accepted'], array['m'], array[null]::text[], array[null]::float8[], 'w')`, "sent"},
	} {
		tx, err := db.Pool(pgtest.Owner).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, `update deed.channel_outbox set lane = lane || 'x'`); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		go func() {
			var status string
			for {
				err := db.Pool(pgtest.Worker).QueryRow(ctx, step.sql, made[0].ID, claim).Scan(&status)
				if err == nil {
					break
				}
				if status = err.Error(); !strings.Contains(status, "55P03") { // a slow machine has it wait too long
					break
				}
			}
			got <- status
		}()
		eventually(t, "the function to wait for the row", func() bool {
			return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (
				select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'select status from %')`)
		})
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if status := <-got; status != step.want {
			t.Errorf("%s, want %s", status, step.want)
		}
	}
}
