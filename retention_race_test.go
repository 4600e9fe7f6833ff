package deed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// An open transaction that has published makes neither retention nor other
// publishers wait; only the empty table stays until it has ended.
func TestContract_O11_IdlePublisherHoldsUpNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	publish(t, db, message("orders", 1), message("orders", 2))
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `delete from deed.pending`)
	db.Broken() // what was pending is gone, and partition 0 with it only in the end
	idle, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Rollback(context.WithoutCancel(ctx))
	if _, err := deed.Publish(ctx, idle, message("orders", 3)); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var slowest atomic.Int64
	var others sync.WaitGroup
	others.Go(func() {
		conn := db.Conn(t, pgtest.App)
		for {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			if _, err := deed.Publish(ctx, conn, message("orders", 4)); err != nil {
				t.Error(err)
				return
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
		}
	})
	// Who waited for the open transaction would wait until the deadline.
	c, err := admin.New(ctx, db.Pool(pgtest.Worker), admin.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	var did []string
	began := time.Now()
	err = c.Retain(ctx, func(s admin.RetentionStep) { did = append(did, s.Did) })
	took := time.Since(began)
	close(stop)
	others.Wait()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "steps", did, []string{"began", "moved", "emptied", "waits"})
	if took > pgtest.Patience/2 || time.Duration(slowest.Load()) > pgtest.Patience/2 {
		t.Errorf("retention took %s, the slowest publish %s", took, time.Duration(slowest.Load()))
	}
	same(t, "size of the partition", pgtest.One[int](t, db.Pool(pgtest.Owner), `select pg_relation_size('deed.log_p0')`), 0)
	if err := idle.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	onPartitions(t, db, `set tried_at = null`)
	did = nil
	if err := c.Retain(ctx, func(s admin.RetentionStep) { did = append(did, s.Did) }); err != nil {
		t.Fatal(err)
	}
	same(t, "steps when it has ended", did, []string{"dropped"})
}

// A publisher that had its number from the partition before it went, and comes
// late with its row, loses nothing.
func TestContract_O11_LateRowOfAnEmptiedPartition(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	publish(t, db, message("orders", 1), message("orders", 2))
	late := func(id int64) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), owner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `
				insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, payload)
				select $1::bigint, pg_current_xact_id(), $1::bigint & 63, list_version, '00000000-0000-0000-0000-000000000000', now(), 'orders', '{"n":7}'
				from deed.settings`, id); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `
				insert into deed.pending (subscription, slot, id, tenant_id, ord_at)
				values (0, $1::bigint & 63, $1::bigint, '00000000-0000-0000-0000-000000000000', now())`, id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	nextDay(t, db)
	older(t, db)
	step := func() (did string) {
		t.Helper()
		return pgtest.One[string](t, owner, `select did || ' ' || messages from deed.retention_step()`)
	}
	same(t, "step", step(), "began 0")
	same(t, "step", step(), "moved 2")
	late(10) // before it is emptied
	same(t, "step", step(), "began 0")
	same(t, "step", step(), "moved 1")
	same(t, "step", step(), "emptied 0")
	late(11) // and after
	same(t, "step", step(), "began 0")
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 1", "0 emptied 0", "0 dropped 0"})
	same(t, "kept", pgtest.One[int](t, owner, `select count(*) from deed.kept`), 4)
}

func TestContract_O11_ManyNodesAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for i := range 3 {
		publish(t, db, message("orders", i), message("orders", i), message("orders", i))
		nextDay(t, db)
	}
	older(t, db)
	var nodes sync.WaitGroup
	for range 4 {
		nodes.Go(func() {
			c, err := admin.New(t.Context(), db.Pool(pgtest.Worker), admin.Options{Deadline: pgtest.Patience})
			if err != nil {
				t.Error(err)
				return
			}
			for range 20 {
				if err := c.Retain(t.Context(), func(admin.RetentionStep) {}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	nodes.Wait()
	onPartitions(t, db, `set tried_at = null`)
	retain(t, db, pgtest.Worker)
	same(t, "tables", tables(t, db), []int{3, 4, 5})
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`), 9)
}

// Partitions come and go under publishers, a stream, a queue and transactions
// that stay open over it all: every message comes, in order.
func TestContract_O11_UnderLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	flaky := func(m deed.Message) error {
		if m.Seq%97 == 0 && rand.IntN(2) > 0 {
			return deed.AfterError(20*time.Millisecond, errors.New("not now"))
		}
		return nil
	}
	orders, effects := &recorder{fail: flaky}, &recorder{fail: flaky}
	opts := stream(orders, func(o *deed.Options) {
		o.Subscriptions[0].MaxAttempts = 1000
		o.Subscriptions = append(o.Subscriptions, deed.Subscription{Topic: "effects", Name: "q", Sink: effects, MaxAttempts: 1000})
	})
	c, stop := runStream(t, db, opts)
	_, stopSecond := runStream(t, db, opts)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`) // other tests' transactions would hold it up
	stopPublishing := publishers(t, db, 3, 10)
	late, side := 0, 0
	for range 8 {
		// Open since before the partition was closed, until after it has gone.
		idle, err := db.Pool(pgtest.App).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := deed.Publish(ctx, idle, keyed("late", late), keyed("late", late)); err != nil {
			t.Fatal(err)
		}
		late += 2
		later := message("effects", 0)
		later.ProcessAfter = time.Now().Add(2 * time.Second)
		publish(t, db, message("effects", 1), later)
		side += 2
		onPartitions(t, db, `set opened_at = opened_at - interval '25 hours' where opened_at is not null`)
		db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`)
		older(t, db)
		var nodes sync.WaitGroup
		for range 2 {
			nodes.Go(func() {
				if err := operator(t, db).Retain(ctx, func(admin.RetentionStep) {}); err != nil {
					t.Error(err)
				}
			})
		}
		nodes.Wait()
		if err := idle.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if found, err := operator(t, db).Verify(ctx); err != nil || len(found) > 0 {
			t.Errorf("violations: %v, %v", found, err)
		}
		onPartitions(t, db, `set tried_at = null`)
	}
	published := stopPublishing() + late
	drained(t, c)
	eventually(t, "the rest of the queue", func() bool { n, _ := effects.counts(); return n == side })
	if err := errors.Join(stop(), stopSecond()); err != nil {
		t.Fatal(err)
	}
	if n, repeats := orders.counts(); n != published || repeats != 0 {
		t.Errorf("%d messages of the stream came, %d again; want %d and none", n, repeats, published)
	}
	if _, repeats := effects.counts(); repeats != 0 {
		t.Errorf("%d messages of the queue came again", repeats)
	}
	inOrder(t, orders.succeeded())
	eventually(t, "all closed partitions to go", func() bool {
		onPartitions(t, db, `set tried_at = null`)
		retain(t, db, pgtest.Worker)
		return len(tables(t, db)) <= 4
	})
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 0)
}

// What comes into a partition while a step waits for its lock begins it anew, and lanes have still to read it: they are added up from behind that.
func TestContract_O11_BegunAnewUnderTheLock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	sink := &recorder{}
	opts := stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 })
	c, stop := runStream(t, db, opts)
	publish(t, db, keyed("late", 1), keyed("late", 2))
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`) // other tests' transactions would hold it up
	idle := openTx(t, db, pgtest.App)
	if _, err := deed.Publish(ctx, idle, keyed("late", 3), keyed("late", 4)); err != nil {
		t.Fatal(err)
	}
	nextDay(t, db)
	older(t, db)
	step := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `select coalesce((select did from deed.retention_step()), '')`)
	}
	same(t, "steps", []string{step(), step()}, []string{"began", "moved"})
	patch{"retention_step", "        execute format('lock table deed.%I in access exclusive mode'", `
		perform pg_advisory_xact_lock(4712);
		while exists (select from pg_locks l where l.locktype = 'advisory' and l.objid = 4711 and l.database = (select d.oid from pg_database d where d.datname = current_database())) loop
			perform pg_sleep(0.01);
		end loop;
		execute format('lock table deed.%I in access exclusive mode'`}.apply(t, db)
	gate := openTx(t, db, pgtest.Owner, `select pg_advisory_xact_lock(4711)`)
	did := make(chan string, 1)
	go func() { did <- step() }()
	eventually(t, "the step to come to the lock", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select exists (select from pg_locks l where l.locktype = 'advisory' and l.objid = 4712 and l.database = (select d.oid from pg_database d where d.datname = current_database()))`)
	})
	if err := errors.Join(idle.Commit(ctx), gate.Rollback(ctx)); err != nil {
		t.Fatal(err)
	}
	same(t, "the step at the lock", <-did, "began")
	held := openTx(t, db, pgtest.Owner, `lock table deed.retention_lock in share update exclusive mode`) // or the relay takes the steps
	c, stop = runStream(t, db, opts)
	drained(t, c)
	if err := errors.Join(stop(), held.Rollback(ctx)); err != nil {
		t.Fatal(err)
	}
	onPartitions(t, db, `set tried_at = null`)
	same(t, "the other steps", retain(t, db, pgtest.Worker), []string{"0 moved 0", "0 emptied 0", "0 dropped 0"})
	if n, repeats := sink.counts(); n != 4 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
}

// What retention takes away is not looked for, either, where the stream that read it has become a queue, and no other has lanes.
func TestContract_O11_OfAStreamThatHasBecomeAQueue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, stop := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 }))
	for n := range 2 {
		publish(t, db, keyed("a", n), keyed("b", n))
		eventually(t, "a page", func() bool { got, _ := sink.counts(); return got == 2*n+2 })
	}
	drained(t, c)
	// Other tests' transactions would hold backfills up, and there is nothing to bring.
	nothingToBring := func() { db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`) }
	nothingToBring()
	db.Exec(t, pgtest.Admin, `select deed.set_topic('orders', p_mode => 'queue')`)
	eventually(t, "the topic to be a queue", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `select mode from deed.topics where topic = 'orders'`) == "queue"
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	nothingToBring()
	nextDay(t, db)
	older(t, db)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 0", "0 emptied 0", "0 dropped 0"})
}

// A process that ends between detaching and dropping, or while it detaches,
// leaves what any other finishes.
func TestContract_O11_KilledBetweenDetachAndDrop(t *testing.T) {
	t.Parallel()
	const detach = `alter table deed.log detach partition deed.log_p0 concurrently`
	empty := func(t *testing.T) *pgtest.DB {
		db := pgtest.New(t)
		publish(t, db, message("orders", 1), message("orders", 2))
		nextDay(t, db)
		older(t, db)
		for _, want := range []string{"began", "moved", "emptied"} {
			same(t, "step", pgtest.One[string](t, db.Pool(pgtest.Worker), `select did from deed.retention_step()`), want)
		}
		return db
	}
	t.Run("detached", func(t *testing.T) {
		t.Parallel()
		db := empty(t)
		db.Exec(t, pgtest.Owner, detach)
		same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 dropped 0"})
		same(t, "tables", tables(t, db), []int{1, 2, 3})
	})
	t.Run("detached, with a row that came late", func(t *testing.T) {
		t.Parallel()
		db := empty(t)
		db.Exec(t, pgtest.Owner, detach)
		db.Exec(t, pgtest.Owner, `
			insert into deed.log_p0
			select 9, pg_current_xact_id(), 9, 1, tenant_id, now(), null, topic, null, null, null, content_type, null, payload
			from deed.kept limit 1`)
		db.Exec(t, pgtest.Owner, `
			insert into deed.pending (subscription, slot, id, tenant_id, ord_at)
			values (0, 9, 9, '00000000-0000-0000-0000-000000000000', now())`)
		same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 began 0", "0 moved 1", "0 emptied 0", "0 dropped 0"})
		same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`), 3)
	})
	t.Run("half detached", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		db := empty(t)
		idle, err := db.Pool(pgtest.App).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := deed.Publish(ctx, idle, message("orders", 3)); err != nil {
			t.Fatal(err)
		}
		conn := db.Conn(t, pgtest.Owner)
		detached := make(chan error, 1)
		go func() {
			_, err := conn.Exec(ctx, detach, pgx.QueryExecModeSimpleProtocol)
			detached <- err
		}()
		// That is committed before it waits for the open transaction, for ever.
		eventually(t, "the partition to be half detached", func() bool {
			return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select inhdetachpending from pg_inherits where inhrelid = 'deed.log_p0'::regclass`)
		})
		db.Exec(t, pgtest.Owner, `select pg_cancel_backend($1)`, int32(conn.PgConn().PID()))
		if err := <-detached; sqlState(err) != "57014" {
			t.Fatalf("detaching beside an open transaction: %v", err)
		}
		if err := idle.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it to go", func() bool {
			onPartitions(t, db, `set tried_at = null`)
			retain(t, db, pgtest.Worker)
			return fmt.Sprint(tables(t, db)) == "[1 2 3]"
		})
	})
}
