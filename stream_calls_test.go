package deed_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// A function that never returns holds its lane, and any other process is told
// by status which message it has, where, and for how long; once it has
// returned, nothing is shown.
func TestStream_CallThatNeverReturnsIsShown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	release := make(chan struct{})
	sink := &recorder{}
	fn := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		if m.Key == "stuck" {
			<-release // whatever becomes of ctx
		}
		return sink.Deliver(ctx, []deed.Message{m})[0]
	})
	c, _ := runStream(t, db, stream(fn, func(o *deed.Options) { o.Worker, o.Topics[0].Lanes = "w1", 1 }))
	stuck := publish(t, db, keyed("stuck", 0))[0]
	for i := range 20 {
		publish(t, db, keyed(fmt.Sprint(i), i))
	}
	other, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	oldest := func() *admin.RunningCall {
		topics, err := other.Status(t.Context())
		if err != nil || len(topics) != 1 || len(topics[0].Subscriptions) != 1 {
			t.Fatalf("%+v, %v", topics, err)
		}
		return topics[0].Subscriptions[0].OldestCall
	}
	var got *admin.RunningCall
	eventually(t, "the call to be shown", func() bool { got = oldest(); return got != nil })
	if got.Seq != stuck.Seq || got.ID != stuck.ID || got.Worker != "w1" || got.Messages != 1 || got.Age < admin.Seconds(10*time.Second) {
		t.Errorf("got %+v, want message %d", got, stuck.Seq)
	}
	close(release)
	eventually(t, "the call to be shown no more", func() bool { return oldest() == nil })
	drained(t, c)
	if n, repeats := sink.counts(); n != 21 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
}

// keyIn is a key of a lane, of so many.
func keyIn(lane, lanes int, name string) string {
	for i := 0; ; i++ {
		key := fmt.Sprint(name, i)
		if int(sha256.Sum256([]byte(key))[0]&63)*lanes/64 == lane {
			return key
		}
	}
}

// A call that never returns holds up its lane, and nothing else: not what was put
// aside, of its lane or of another, nor the other lanes, nor a stop for longer than
// its grace and a little.
func TestContract_O13_ACallThatHangsHoldsUpItsLaneOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	hang, beside, other := keyIn(0, 2, "hang"), keyIn(0, 2, "beside"), keyIn(1, 2, "other")
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	var hangs, well atomic.Bool
	var others atomic.Int64
	sink := &recorder{}
	fn := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		switch {
		case m.Key == hang:
			hangs.Store(true)
			<-gate // whatever becomes of ctx
			if ctx.Err() != nil {
				return ctx.Err()
			}
		case m.Key == beside && !well.Load(), m.Key == other && others.Add(1) == 1:
			return deed.AfterError(100*time.Millisecond, errors.New("not yet"))
		}
		return sink.Deliver(ctx, []deed.Message{m})[0]
	})
	opts := stream(fn, func(o *deed.Options) {
		o.Topics[0].Lanes, o.Grace, o.Subscriptions[0].MaxAttempts = 2, time.Second, 1000 // however long it fails, it does not die
	})
	c, err := deed.New(ctx, db.Pool(pgtest.Worker), opts)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	eventually(t, "the client to be ready", func() bool { return c.Ready(t.Context()) == nil })
	aside := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`)
	}
	publish(t, db, keyed(beside, 0))
	eventually(t, "the message to be aside", func() bool { return aside() == 1 })
	// One page: what stands behind the message that is aside, and the call.
	publish(t, db, keyed(beside, 1), keyed(hang, 0))
	eventually(t, "the call", hangs.Load)
	well.Store(true)
	eventually(t, "the message to be tried again, and recorded", func() bool { return aside() == 0 })
	publish(t, db, keyed(other, 0), keyed(other, 1))
	eventually(t, "the other lane to go on with its retries", func() bool { n, _ := sink.counts(); return n == 3 && aside() == 0 })
	stop()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("nothing is said of the call that was left behind")
		}
	case <-time.After(pgtest.Patience):
		t.Fatal("the stop does not end")
	}
	release()
	db.Exec(t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() where worker is not null`) // what was left behind is another's then
	c, _ = runStream(t, db, opts)
	drained(t, c)
	if n, repeats := sink.counts(); n != 5 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 5 and none", n, repeats)
	}
	inOrder(t, sink.succeeded())
}

// A transaction that is left open with a key locked, as a person's who discards its
// dead message, holds up no lane: what comes of the key is put behind it, and goes when
// it has ended, whichever way; all else is delivered once.
func TestContract_O13_AKeyLockedForLongHoldsUpNoLane(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var well atomic.Bool
			sink := &recorder{fail: func(m deed.Message) error {
				if m.Key == "bad" && !well.Load() {
					return deed.Permanent(errors.New("never"))
				}
				return nil
			}}
			opts := stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 })
			c, stop := runStream(t, db, opts)
			dead := publish(t, db, keyed("bad", 0))[0]
			aside := func() int {
				return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`)
			}
			eventually(t, "the message to be dead", func() bool { return aside() == 1 })
			open := openTx(t, db, pgtest.Admin, fmt.Sprintf(`select deed.discard(%d, 'not needed')`, dead.Seq))
			const pages = 5 // more than wait for their record
			for i := range pages {
				publish(t, db, keyed("bad", i+1), keyed(fmt.Sprint("good", i), i))
				eventually(t, "the other message of the page", func() bool { n, _ := sink.counts(); return n == i+1 })
			}
			eventually(t, "the pages to be recorded", func() bool { return aside() == pages+1 })
			well.Store(true)
			want := 2 * pages
			if commits {
				if err := errors.Join(open.Commit(t.Context()), stop()); err != nil {
					t.Fatal(err)
				}
				c, _ = runStream(t, db, opts) // who has a new lane looks at once for what stands behind nothing, others within a minute
			} else if err := open.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			} else {
				same(t, "put back", pgtest.One[int](t, db.Pool(pgtest.Admin), `select redriven::int from deed.redrive('r', 'orders')`), 1)
				want++
			}
			eventually(t, "all to come", func() bool { n, _ := sink.counts(); return n == want && aside() == 0 })
			drained(t, c)
			if _, repeats := sink.counts(); repeats != 0 {
				t.Errorf("%d came again", repeats)
			}
			inOrder(t, sink.succeeded())
		})
	}
}

// Nor does one with a message locked that stands behind another of its key hold up other
// keys, or what became of the one before it, be that new or a claim that ran out. None of
// the key overtakes it, and the key goes on when that has ended, whichever way.
func TestContract_O13_AParkedMessageLockedForLongHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		for _, lapsed := range []bool{true, false} {
			t.Run(fmt.Sprintf("commits=%t lapsed=%t", commits, lapsed), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				worker := db.Pool(pgtest.Worker)
				db.Exec(t, pgtest.Worker, `select deed.declare_topic('orders', 'stream')`)
				sub := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's')`)
				published := publish(t, db, keyed("k", 0), keyed("k", 1), keyed("k", 2), keyed("l", 0))
				first, locked, last, other := published[0].Seq, published[1].Seq, published[2].Seq, published[3].Seq
				db.Exec(t, pgtest.Owner, `
					insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash, parked)
					select $1, l.slot, l.id, l.tenant_id, l.created_at, deed.key_hash(l.tenant_id, l.key), row_number() over (partition by l.key order by l.id) > 1
					from deed.log l`, sub)
				hash := func(id int64) int64 {
					return pgtest.One[int64](t, db.Pool(pgtest.Owner), `select key_hash from deed.pending where id = $1`, id)
				}
				ask := func(sql string, args ...any) []int64 {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					rows, err := worker.Query(ctx, sql, args...)
					if err != nil {
						t.Fatalf("%s: %v", sql, err)
					}
					list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
					if err != nil {
						t.Fatalf("%s: %v", sql, err)
					}
					return list
				}
				attend := func() []int64 {
					t.Helper()
					return ask(`select id from deed.attend($1, 'w', 10, '{0}', '{1073741824}', '1 hour')`, sub)
				}
				heal := func() []int64 {
					t.Helper()
					return ask(`select unnest(deed.heal_keys($1, '{0}', '{63}'))`, sub)
				}
				if lapsed {
					same(t, "claimed before", attend(), []int64{first, locked, last, other})
					db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms'`)
				}

				open := openTx(t, db, pgtest.Admin, fmt.Sprintf(`select deed.discard(%d, 'not needed')`, locked))
				same(t, "claimed", attend(), []int64{first, other})
				same(t, "claims of what stands behind it", pgtest.One[int](t, worker, `select count(claim) from deed.pending where id = $1`, last), 0)
				key, others := hash(first), hash(other)
				same(t, "finished", finish(t, worker, sub, pgtest.One[int64](t, worker, `select claim from deed.pending where id = $1`, first), first, other), 2)
				same(t, "keys of which nothing is aside", ask(`select unnest(deed.release_keys($1, array[$2::bigint, $3::bigint]))`, sub, key, others), []int64{others})
				same(t, "let go meanwhile", heal(), []int64{})
				same(t, "claimed meanwhile", attend(), []int64{})

				rest := []int64{last}
				end := open.Commit
				if !commits {
					rest, end = []int64{locked, last}, open.Rollback
				}
				if err := end(t.Context()); err != nil {
					t.Fatal(err)
				}
				same(t, "let go", heal(), []int64{key})
				same(t, "claimed afterwards", attend(), rest)
			})
		}
	}
}

// What is claimed of what is aside is as little as a claim of a queue and a page are
// where messages are large, also of one key.
func TestStream_WhatIsAsideIsClaimedByItsSize(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var well atomic.Bool
	begun, release := make(chan struct{}, 100), make(chan struct{})
	sink := &recorder{fail: func(deed.Message) error {
		if !well.Load() {
			return deed.AfterError(0, errors.New("not yet"))
		}
		begun <- struct{}{}
		<-release
		return nil
	}}
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) { o.Subscriptions[0].MaxAttempts = 1 }))
	large := deed.Message{Topic: "orders", Key: "k", Payload: []byte(`"` + strings.Repeat("x", 1e6-2) + `"`)}
	const count = 50
	for range count {
		publish(t, db, large)
	}
	worker := db.Pool(pgtest.Worker)
	number := func(which string) int {
		return pgtest.One[int](t, worker, `select count(*) from deed.pending where `+which)
	}
	eventually(t, "the others to be parked", func() bool { return number("parked") == count-1 })
	well.Store(true)
	if n, err := operator(t, db).Redrive(t.Context(), admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "orders"}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	<-begun
	if n := number("claim is not null"); n < 1 || n > 33 {
		t.Errorf("%d MB were claimed at once, want 32 MiB at the most", n)
	}
	close(release)
	eventually(t, "all to come", func() bool { n, _ := sink.counts(); return n == count })
	drained(t, c)
}
