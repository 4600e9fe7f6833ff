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

// publishers publish until stopped, each transaction one message of a key whose
// row it has locked, so that the numbers in the payloads are in commit order.
func publishers(t *testing.T, db *pgtest.DB, count, keys int) (stop func() (published int)) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `create table public.aggregates (key int primary key, n int not null default 0)`)
	db.Exec(t, pgtest.Owner, fmt.Sprintf(`insert into public.aggregates select i from generate_series(1, %d) i`, keys))
	db.Exec(t, pgtest.Owner, `grant select, update on public.aggregates to public`)
	ctx, cancel := context.WithCancel(context.Background())
	var total atomic.Int64
	var running sync.WaitGroup
	for range count {
		running.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for ; ctx.Err() == nil; <-pace.C {
				err := pgx.BeginFunc(context.Background(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
					key, n := 1+rand.IntN(keys), 0
					err := tx.QueryRow(ctx, `update public.aggregates set n = n + 1 where key = $1 returning n`, key).Scan(&n)
					if err != nil {
						return err
					}
					_, err = deed.Publish(ctx, tx, keyed(fmt.Sprint(key), n))
					return err
				})
				if err == nil {
					total.Add(1)
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	stop = sync.OnceValue(func() int {
		cancel()
		running.Wait()
		return int(total.Load())
	})
	t.Cleanup(func() { stop() })
	return stop
}

func TestStream_WorkersShareTheLanes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	one := func(name string) deed.Options { return stream(sink, func(o *deed.Options) { o.Worker = name }) }
	c, stop := runStream(t, db, one("first"))
	stopPublishing := publishers(t, db, 2, 20)
	shares := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select coalesce(string_agg(r.name || ' ' || l.n, ', ' order by r.name), '')
			from (select worker, count(*) as n from deed.lanes group by worker) l
			join deed.relays r on r.worker = l.worker`)
	}
	eventually(t, "the first to hold all lanes", func() bool { return shares() == "first 4" })
	_, stopSecond := run(t, db, one("second"))
	eventually(t, "the second to have its share", func() bool { return shares() == "first 2, second 2" })
	_, stopThird := run(t, db, one("third"))
	eventually(t, "the third to have one of four", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select coalesce(string_agg(l.n::text, ' ' order by l.n desc), '')
			from (select count(*) as n from deed.lanes where worker is not null group by worker) l`) == "2 1 1"
	})
	if err := stopThird(); err != nil {
		t.Error(err)
	}
	eventually(t, "the two to have all again", func() bool { return shares() == "first 2, second 2" })
	if err := stopSecond(); err != nil {
		t.Error(err)
	}
	eventually(t, "the first to have all again", func() bool { return shares() == "first 4" })
	n := stopPublishing()
	drained(t, c)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got, repeats := sink.counts(); got != n || repeats != 0 {
		t.Errorf("%d messages came, %d again; want %d and none: lanes were handed over cleanly", got, repeats, n)
	}
	inOrder(t, sink.list)
}

// However many lanes and processes there are, none has two lanes more than another once
// those that have come or gone were seen to. Then nothing changes hands, and none takes
// again what it gave.
func TestStream_AnyNumberOfWorkersShareAnyNumberOfLanes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lanes   int
		workers []int // how many there are, one after the other
	}{
		{4, []int{1, 2, 3, 2, 5, 1}}, {5, []int{2, 3, 4, 3, 1}}, {1, []int{1, 2, 1}}, {64, []int{1, 7, 6, 9, 2}},
	} {
		t.Run(fmt.Sprint(c.lanes), func(t *testing.T) {
			t.Parallel()
			s := &changing{t: t, db: pgtest.New(t)}
			s.exec(pgtest.Worker, `select deed.declare_topic('orders', 'stream', $1)`, c.lanes)
			s.sub = s.subscribe("s")
			pool := s.db.Pool(pgtest.Worker)
			// take asks as a worker does, gives back what it is told to, and returns how many
			// lanes it has then and whether it gave any.
			take := func(i int) (has int, gave bool) {
				t.Helper()
				rows, err := pool.Query(t.Context(), `
					select lane, fence, give_back
					from deed.take_lanes($1::text::uuid, 'w', array[$2::int], p_protocol => 2, p_leases => array[interval '1 hour'])`, worker(i), s.sub)
				if err != nil {
					t.Fatal(err)
				}
				type held struct {
					Lane  int
					Fence int64
					Gives bool
				}
				list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[held])
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range list {
					if l.Gives {
						s.exec(pgtest.Worker, `select deed.release_lane($1, $2, $3)`, s.sub, l.Lane, l.Fence)
						gave = true
					} else {
						has++
					}
				}
				return has, gave
			}
			fences := func() string {
				return pgtest.One[string](t, pool, `select string_agg(lane || ' ' || fence, ', ' order by lane) from deed.lanes where worker is not null`)
			}
			before := 0
			for _, n := range c.workers {
				for i := n + 1; i <= before; i++ {
					s.exec(pgtest.Worker, `select deed.leave_relays($1::text::uuid, true)`, worker(i))
				}
				before = n
				left := map[int]int{} // of those who have given some back
				for range 3 {         // they come; they give; they take
					for i := 1; i <= n; i++ {
						has, gave := take(i)
						if was, ok := left[i]; ok && has > was {
							t.Errorf("%d of %d gave lanes back, had %d, and has %d", i, n, was, has)
						}
						if gave {
							left[i] = has
						}
					}
				}
				settled := fences()
				for i := 1; i <= n; i++ {
					take(i)
				}
				same(t, fmt.Sprintf("of %d, afterwards", n), fences(), settled)
				uneven := min(c.lanes%n, 1)
				same(t, fmt.Sprintf("of %d, most and fewest apart, all", n), pgtest.One[string](t, pool, `
					select max(n) - min(n) || ' ' || sum(n)
					from (
						select (select count(*) from deed.lanes l where l.subscription = r.subscription and l.worker = r.worker) as n
						from deed.relays r where r.subscription = $1
					) w`, s.sub), fmt.Sprint(uneven, c.lanes))
			}
		})
	}
}

// A process that stops at any moment, also while it takes lanes, leaves none
// that others would have to wait for.
func TestStream_LeavesNothingHeld(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for n := range 30 {
		_, stop := runStream(t, db, stream(&recorder{}))
		time.Sleep(time.Duration(n) * time.Millisecond)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		left := pgtest.One[string](t, db.Pool(pgtest.Worker), `select (select count(*) from deed.relays) || ' signed on, '
			|| (select count(*) from deed.lanes where worker is not null) || ' lanes held'`)
		if left != "0 signed on, 0 lanes held" {
			t.Fatalf("after %d ms: %s", n, left)
		}
	}
}

func TestStream_ChangeOfLanes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runStream(t, db, stream(sink))
	run(t, db, stream(sink))
	stopPublishing := publishers(t, db, 2, 20)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lanes := range []int{7, 1, 64} {
		if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Lanes: lanes}); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprint("the stream to have lanes: ", lanes), func() bool {
			return pgtest.One[bool](t, db.Pool(pgtest.Worker), `
				select count(*) = $1 and bool_and(worker is not null) and not exists (select from deed.relanings) from deed.lanes`, lanes)
		})
	}
	n := stopPublishing()
	drained(t, c)
	if got, repeats := sink.counts(); got != n || repeats != 0 {
		t.Errorf("%d messages came, %d again; want %d and none", got, repeats, n)
	}
	inOrder(t, sink.list)
}

// A lane that another worker has taken over records nothing any more.
func TestContract_O14_StaleOwnerOfALane(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	release := make(chan struct{})
	began := make(chan struct{}, 1)
	frozen := &recorder{fail: func(m deed.Message) error {
		select {
		case began <- struct{}{}:
		default:
		}
		<-release
		return nil
	}}
	slow, stopSlow := runStream(t, db, stream(frozen, func(o *deed.Options) { o.Worker = "slow"; o.Topics[0].Lanes = 1 }))
	_ = slow
	publish(t, db, keyed("k", 0), keyed("k", 1))
	<-began
	// As when the process is frozen for longer than its lease: it does not take the
	// lane again.
	patch{"take_lanes", "v_busy := array(", "if p_name = 'slow' then return; end if; v_busy := array("}.apply(t, db)
	db.Exec(t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() - interval '1 second', worker = gen_random_uuid()`)
	db.Exec(t, pgtest.Owner, `update deed.relays set seen_until = clock_timestamp()`)
	sink := &recorder{}
	second, _ := run(t, db, stream(sink, func(o *deed.Options) { o.Worker = "second"; o.Topics[0].Lanes = 1 }))
	eventually(t, "the other worker to deliver them", func() bool { n, _ := sink.counts(); return n == 2 })
	close(release)
	drained(t, second)
	_ = stopSlow()
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(sum(messages), 0) from deed.progress where worker = 'slow' and messages > 0`); n != 0 {
		t.Errorf("the stale owner recorded %d messages", n)
	}
}

// Order holds under failures of many keys, two relays, and lanes that change
// hands all the time.
func TestContract_O13_UnderFailuresAndChangingHands(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var mu sync.Mutex
	tries := map[int64]int{}
	sink := &recorder{fail: func(m deed.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if tries[m.Seq]++; m.Seq%17 == 0 && tries[m.Seq]%3 != 0 {
			return deed.AfterError(time.Duration(m.Seq%40)*time.Millisecond, errors.New("not yet"))
		}
		return nil
	}}
	opts := stream(sink)
	c, _ := runStream(t, db, opts)
	stopPublishing := publishers(t, db, 2, 20)
	for i := range 3 {
		_, stop := run(t, db, opts)
		before, _ := sink.counts()
		eventually(t, "deliveries", func() bool { n, _ := sink.counts(); return n > before+300 })
		if i == 1 {
			operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Lanes: 7}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	n := stopPublishing()
	eventually(t, "all to have come", func() bool { got, _ := sink.counts(); return got >= n })
	drained(t, c)
	if got, repeats := sink.counts(); got != n || repeats != 0 {
		t.Errorf("%d messages came, %d again; want %d and none", got, repeats, n)
	}
	inOrder(t, sink.succeeded())
}
